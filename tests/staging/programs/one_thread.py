"""``python -m staging`` whose workers work in the main thread, one after the other.

strace counts the calls of each thread for itself, and kills at the first thread that has made so many: a single one
tells which call it is. With one worker the calls and their order are those of the command itself.
"""

from __future__ import annotations

import sys

from staging.__main__ import main
from staging.threads.worker import Worker

setattr(Worker, "start", lambda worker: worker._work())  # noqa: B010
setattr(Worker, "wait", lambda worker, seconds: True)  # noqa: B010
sys.exit(main())
