"""The decode core."""
