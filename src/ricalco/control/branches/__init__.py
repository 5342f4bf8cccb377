"""One of several programs, as one equation."""
