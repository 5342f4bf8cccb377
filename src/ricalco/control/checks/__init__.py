"""`checkify`: checks as values."""
