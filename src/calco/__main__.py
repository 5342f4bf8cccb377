"""``python -m calco``: the command line."""
import sys

from calco.cli import main

if __name__ == "__main__":
    sys.exit(main())
