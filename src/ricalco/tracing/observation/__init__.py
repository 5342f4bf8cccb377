"""Watching what the Python code of a function reads, does and decides while it is traced."""
