"""`python -m engine.runtime`: the former name of `python -m engine.control`."""

import sys

from engine.control.__main__ import main

if __name__ == "__main__":
    sys.exit(main())
