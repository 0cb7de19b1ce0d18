"""Takes the place of ``hpcbench train`` where jobs are tested: works in tenths of a second, and leaves what a run does.

It stops at SIGUSR1 and SIGTERM as a training does, continues where its last checkpoint stood, and writes down when it
found another one at work in its folder.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from types import FrameType

from hpcbench.results.attempts import Attempt, Attempts
from hpcbench.results.run_folder import RunFolder
from hpcbench.results.summary import Summary

STEPS = int(os.environ.get("FAKE_STEPS", "10"))
FAKE = Path(os.environ["FAKE"])


def is_alive(pid: int) -> bool:
    """Whether a process is at work, and not only waits for its parent."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def begin(path: Path) -> None:
    """Say that this process works in the folder; which others do is written down."""
    list_ = FAKE / "trainings"
    with list_.open("a") as file:
        file.write(f"{path} {os.getpid()}\n")
    others = [line.rsplit(" ", 1) for line in list_.read_text().splitlines()]
    alive = [pid for run, pid in others if run == str(path) and int(pid) != os.getpid() and is_alive(int(pid))]
    if alive:
        with (FAKE / "together").open("a") as file:
            file.write(f"{path}: {os.getpid()} beside {' '.join(alive)}\n")


def main(words: list[str]) -> int:
    """Work to the end, or to a signal; the exit code."""
    path = Path(words[words.index("--run-dir") + 1])
    caught: list[int] = []

    def catch(number: int, frame: FrameType | None) -> None:
        caught.append(number)

    for each in (signal.SIGUSR1, signal.SIGTERM):
        signal.signal(each, catch)
    begin(path)  # who waits for this may send a signal at once
    folder = RunFolder(path)
    folder.checkpoints.mkdir(exist_ok=True)
    kept = [int(each.stem.rsplit("-", 1)[1]) for each in folder.checkpoints.glob("*.json")]
    resumes = any(word.startswith("--resume") for word in words)
    step = max(kept, default=0) if resumes else 0
    attempts = Attempts.read(path)
    own = Attempt(time.time(), time.time(), step, step)
    attempts.attempts.append(own)
    while step < STEPS and not caught:
        time.sleep(0.1)
        step += 1
        folder.append_rows("steps.csv", [{"epoch": 1, "step": step, "lr": 0.1}])
        if step % 2 == 0 or caught:
            took_s = float(os.environ["FAKE_SAVE_S"])
            own.saves.append({"step": step, "stall_s": 0.0, "copy_s": 0.0, "write_bytes": 1, "write_s": took_s})
            own.last_step, own.ended = step, time.time()
            attempts.write(path)
            (folder.checkpoints / f"epoch-0001-step-{step:08d}.pt").touch()
            (folder.checkpoints / f"epoch-0001-step-{step:08d}.json").touch()
    own.ended, own.last_step = time.time(), step
    own.cause = "signal" if caught else "epochs"
    attempts.write(path)
    summary = Summary("cosmoflow", "t", "smoke", status="success", cause="epochs", complete=True)
    if caught:
        name = signal.Signals(caught[0]).name
        summary = Summary("cosmoflow", "t", "smoke", status="aborted", cause="signal", signal=name, reason=name)
    folder.write_summary(summary)
    return 128 + caught[0] if caught else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
