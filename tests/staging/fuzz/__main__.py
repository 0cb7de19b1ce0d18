"""``python -m tests.staging.fuzz``: mutated files of every format are put through the readers of staging."""

import sys

from tests.staging.fuzz.campaign import main

if __name__ == "__main__":
    sys.exit(main())
