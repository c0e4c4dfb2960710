"""`python -m echodraft`: the command line."""

import sys

from echodraft.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
