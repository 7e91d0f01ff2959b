"""`python -m ethogram`: the command."""

import sys

from ethogram.commands import main

if __name__ == "__main__":
    sys.exit(main())
