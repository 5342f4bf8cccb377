"""Running a function once on stand-ins and recording what it does."""
