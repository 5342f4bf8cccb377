"""A program run once, as one equation."""
