"""Everything that needs an accelerator, in three calls of under eight minutes on a bare machine with PyTorch.

``python benchmarks/accelerator.py tests|train|rest`` runs ``tests/gpu``; training steps of both applications at the
published size; and the rest: optimizers, halos, activation checkpointing, simulators, DALI. Each call writes one file,
``accelerator_<call>.json`` in ``benchmarks/results`` (or ``--out``), after every measurement, so an interrupted call
leaves what it measured. What does not fit in ``--budget-s`` is left out and named.

If the machine's Python lacks packages and has no network, carry them: ``accelerator.py wheels --out wheels`` where
there is a network, then ``accelerator.py tests --wheels wheels`` on the machine. ``--smoke`` tries everything, small,
on a processor.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
START = time.monotonic()
BUDGET_S = 440.0
"""Seconds of a call of eight minutes; what is running then ends within the remainder."""


def main() -> int:
    """Dispatch to a call, the download of wheels, or a worker."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="call", required=True)
    for name in ("tests", "train", "rest"):
        call = commands.add_parser(name)
        call.add_argument("--budget-s", type=float, default=BUDGET_S, help="seconds for the whole call")
        call.add_argument("--wheels", type=Path, help="folder of wheels for what this Python lacks")
        call.add_argument("--out", type=Path, help="folder for the result file")
        call.add_argument("--smoke", action="store_true", help="tiny sizes, also on a processor")
        call.add_argument("--commit", help="commit of the code, if this is not a clone")
        call.add_argument("--only", nargs="+", default=[""], help="measurements whose name contains one of these")
    wheels = commands.add_parser("wheels")
    wheels.add_argument("--out", type=Path, default=Path("wheels"))
    wheels.add_argument("--python-version", default="3.12")
    wheels.add_argument("--present", type=Path, help="file of packages already there (pip list --format=freeze)")
    wheels.add_argument("--add", nargs="*", default=[], help="further packages")
    worker = commands.add_parser("worker")
    worker.add_argument("--smoke", action="store_true")
    options = parser.parse_args()
    sys.path.insert(0, str(ROOT))  # the checkout need not be installed
    if options.call == "wheels":
        from _accelerator.wheels import download

        return download(options.out, options.python_version, options.present, options.add)
    if options.call == "worker":
        from _accelerator.worker import serve

        serve(options.smoke)
        return 0
    with tempfile.TemporaryDirectory(prefix="accelerator-") as folder:
        return run_call(options, Path(folder))


def run_call(options: argparse.Namespace, folder: Path) -> int:
    """Make the measurements of a call; return exit code 1 if one failed."""
    from _accelerator.plan import GOALS, planned
    from _accelerator.runner import Record, Runner
    from _accelerator.wheels import install

    packages = install(options.wheels, folder / "packages")
    below = [str(ROOT), str(folder / "packages")]
    sys.path[1:1] = below[1:]
    environment = dict(os.environ, TMPDIR=str(folder), ACCELERATOR_FOLDER=str(folder))
    environment["PYTHONPATH"] = os.pathsep.join([*below, *filter(None, [os.environ.get("PYTHONPATH")])])
    from _common import RESULTS, commit, machine

    head = {
        "command": " ".join(["python", "benchmarks/accelerator.py", *sys.argv[1:]]),
        "commit": options.commit or commit(),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "machine": machine(),
        "packages": packages,
        "budget_s": options.budget_s,
        "smoke": options.smoke,
        "goals": GOALS,
    }
    record = Record((options.out or RESULTS) / f"accelerator_{options.call}.json", head)
    words = [sys.executable, str(Path(__file__).resolve()), "worker", *["--smoke"] * options.smoke]
    runner = Runner(record, lambda _: words, environment, START + options.budget_s)
    plan = planned(options.call, options.smoke)
    runner.run([one for one in plan if any(word in one.name for word in options.only)])
    states = [entry["status"] for entry in record.entries]
    counts = ", ".join(f"{states.count(state)} {state}" for state in ("measured", "skipped", "failed"))
    print(f"{record.path}: {counts}, {time.monotonic() - START:.0f} s", flush=True)
    return int("failed" in states)


if __name__ == "__main__":
    raise SystemExit(main())
