"""A program run many times, as one equation."""
