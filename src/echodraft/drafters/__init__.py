"""Drafters: one method a file, one line each in `registry`."""
