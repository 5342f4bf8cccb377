"""Python functions that compiled programs call."""
