"""Functions with rules of their own, as one equation."""
