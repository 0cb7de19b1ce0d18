"""``python -m hpcbench``."""

import sys

from hpcbench.cli.main import main

sys.exit(main())
