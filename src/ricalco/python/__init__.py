"""The user's Python: frames, places, syntax, what code objects read and store, and which code is the user's."""
