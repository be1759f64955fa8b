"""Entry of the log reader process, apart from `log_reader` so that what travels is pickled under that module's name."""

from __future__ import annotations

import sys

from engine.runtime.log_reader import main

if __name__ == "__main__":
    main(int(sys.argv[1]))
