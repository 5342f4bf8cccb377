"""``python -m ricalco``: the command line."""
import sys

from ricalco.cli import main

if __name__ == "__main__":
    sys.exit(main())
