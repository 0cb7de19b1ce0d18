"""``python -m staging``, killed as it gives the third file its name."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from staging.__main__ import main

rename, names = os.rename, list[Any]()


def count(*words: Any, **more: Any) -> None:
    """Rename twice."""
    names.append(words)
    if len(names) == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    rename(*words, **more)


os.rename = count
sys.exit(main())
