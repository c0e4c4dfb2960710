"""Measuring: prompt sets, a runner with peers, reports, and what counts as the same text."""
