"""Slurm, PBS, LSF and Flux that run the scripts they are given, here, one process for each job: for tests.

Called by the names of their commands. Jobs lie in ``$FAKE/jobs/N``: what was submitted, ``state`` (waiting, running,
ended, cancelled), and ``code``. Exit codes and words are those of the real ones. Files in ``$FAKE`` make trouble:

- ``down``: nobody answers; ``slow``: every answer takes as many seconds as stand there;
- ``lost``: the next submissions, as many as stand there, are taken, and their answer is lost;
- ``refuses``: the next commands, as many as stand there, fail before they have done anything;
- ``forget``: jobs that have ended are no longer known;
- ``kills/N``: the script of the N-th start of a job in all is killed so many seconds after it began.
"""

from __future__ import annotations

import contextlib
import fcntl
import getpass
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

FAKE = Path(os.environ["FAKE"])
DOWN = {
    "slurm": "slurm_load_jobs error: Socket timed out on send/recv operation",
    "pbs": "Connection refused\nqstat: cannot connect to server pbs (errno=111)",
    "lsf": "LSF is down. Please wait ...",
    "flux": "flux: ERROR: Unable to connect to Flux: broker socket: No such file or directory",
}
KIND = {
    "sbatch": "slurm", "squeue": "slurm", "sacct": "slurm", "scontrol": "slurm", "scancel": "slurm", "qsub": "pbs",
    "qstat": "pbs", "qselect": "pbs", "qdel": "pbs", "bsub": "lsf", "bjobs": "lsf", "bkill": "lsf", "flux": "flux",
}  # fmt: skip
DOWN_CODE = {"slurm": 1, "pbs": 111, "lsf": 255, "flux": 1}
DIRECTIVE = {"slurm": r"#SBATCH --comment=(\S+)", "pbs": r"#PBS -v HPCBENCH_MARK=(\S+)", "lsf": r"#BSUB -Jd (\S+)",
             "flux": r"# flux: --job-name=(\S+)"}  # fmt: skip


class Job:
    """One job, by its folder."""

    def __init__(self, number: str) -> None:
        self.number = number
        self.folder = FAKE / "jobs" / number

    def read(self, name: str) -> str:
        """One fact of it."""
        path = self.folder / name
        return path.read_text() if path.exists() else ""

    def write(self, name: str, text: str) -> None:
        """Write one fact, at once."""
        part = self.folder / f".{name}.{os.getpid()}"
        part.write_text(text)
        part.replace(self.folder / name)

    @property
    def has_ended(self) -> bool:
        """Whether it will not run any more."""
        return self.read("state") in ("ended", "cancelled")


@contextlib.contextmanager
def locked() -> Iterator[None]:
    """One command at a time."""
    with (FAKE / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def counts_down(name: str) -> bool:
    """Whether this kind of trouble is still to come, once less from here on."""
    with locked():
        path = FAKE / name
        left = int(path.read_text() or 0) if path.exists() else 0
        if left:
            path.write_text(str(left - 1))
        return left > 0


def jobs() -> list[Job]:
    """All, oldest first; ended ones only while they are remembered."""
    found = [Job(name) for name in sorted((path.name for path in (FAKE / "jobs").iterdir()), key=int)]
    return [job for job in found if job.read("state") and not (job.has_ended and (FAKE / "forget").exists())]


def submit(kind: str, script: str, after: str = "", **environ: str) -> Job:
    """Queue a job, whose runner outlives this command."""
    mark = environ.get("HPCBENCH_MARK") or re.search(DIRECTIVE[kind], script, re.MULTILINE)[1]  # type: ignore[index]
    with locked():
        last = max((int(path.name) for path in (FAKE / "jobs").iterdir()), default=0)
        job = Job(next(each for each in map(str, itertools.count(last + 1)) if "0" not in each))  # as in base 58
        job.folder.mkdir()
    facts = {"script": script, "run": str(Path.cwd()), "mark": mark, "after": after, "kind": kind, "state": "waiting"}
    for name, text in {**facts, "environ": json.dumps({"HPCBENCH_MARK": mark} | environ)}.items():
        job.write(name, text)
    if os.fork() == 0:
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(null, descriptor)
        run(job)
        os._exit(0)
    return job


def run(job: Job) -> None:
    """Wait for the job before, then run the script as often as it is queued again."""
    while job.read("after") and not Job(job.read("after")).has_ended:
        time.sleep(0.02)
    while True:
        time.sleep(0.05)
        with locked():
            if job.read("state") != "waiting":
                return
            job.write("state", "running")
        job.write("began", str(time.time()))
        code = start(job)
        job.write("life_s", str(time.time() - float(job.read("began"))))
        job.write("elapsed", str(int(time.time() - float(job.read("began")))))
        with locked():
            again = job.read("requeue")
            job.write("requeue", "")
            if not again:
                job.write("code", str(code))
                if job.read("state") != "cancelled":
                    job.write("state", "ended")
                return
            job.write("restarts", str(1 + int(job.read("restarts") or 0)))
            job.write("state", "waiting")


def start(job: Job) -> int:
    """One start of the script, in a session of its own, of which nothing is left in the end; its exit code."""
    kind, number = job.read("kind"), job.number
    ids = {
        "slurm": {"SLURM_JOB_ID": number, "SLURM_RESTART_COUNT": job.read("restarts") or "0"},
        "pbs": {"PBS_JOBID": f"{number}.server"},
        "lsf": {"LSB_JOBID": number},
        "flux": {"FLUX_JOB_ID": number},
    }
    environ = {**os.environ, **json.loads(job.read("environ")), **ids[kind]}
    with locked():
        begun = FAKE / "begun"
        nth = 1 + int(begun.read_text() if begun.exists() else 0)
        begun.write_text(str(nth))
    kill = FAKE / "kills" / str(nth)
    with (Path(job.read("run")) / f"job-{number}.log").open("a") as log:
        process = subprocess.Popen(
            ["bash", str(job.folder / "script")], cwd=job.read("run"), env=environ, stdin=subprocess.DEVNULL,
            stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
    job.write("session", str(process.pid))
    try:
        process.wait(float(kill.read_text()) if kill.exists() else None)
    except subprocess.TimeoutExpired:
        process.kill()
        with (FAKE / "killed").open("a") as file:
            file.write(f"{number}\n")
        if nth % 2 and kind == "slurm":  # as after the end of a node
            job.write("requeue", "yes")
    code = process.wait()
    end_session(process.pid)
    return code if code >= 0 else 128 - code


def end_session(session: int) -> None:
    """Kill what a script has left, and wait until it is gone."""
    words = ["ps", "-o", "pid=,stat=", "--sid", str(session)]
    while True:
        own = subprocess.run(words, capture_output=True, text=True, check=False)
        left = [line.split()[0] for line in own.stdout.splitlines() if not line.split()[1].startswith("Z")]
        if not left:
            return
        for each in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(each), signal.SIGKILL)
        time.sleep(0.01)


def cancel(job: Job) -> None:
    """Take a job out of the queue, or end it: SIGTERM to its script and its ranks."""
    with locked():
        before = job.read("state")
        if before in ("waiting", "running"):
            job.write("state", "cancelled")
    if before == "running" and job.read("session"):
        words = ["ps", "-o", "pid=", "--sid", job.read("session")]
        own = subprocess.run(words, capture_output=True, text=True, check=False)
        for each in own.stdout.split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(each), signal.SIGTERM)


def option(words: list[str], name: str) -> str:
    """The value of an option, as ``--name=value`` or ``-n value``; empty where it is not given."""
    for place, word in enumerate(words):
        if word.startswith(f"{name}="):
            return word.partition("=")[2]
        if word == name:
            return words[place + 1]
    return ""


def fail(code: int, words: str) -> None:
    """End with an error."""
    print(words, file=sys.stderr)
    sys.exit(code)


def slurm(command: str, words: list[str]) -> None:
    """``sbatch``, ``squeue``, ``sacct``, ``scontrol`` and ``scancel``."""
    if command == "sbatch":
        answer(submit("slurm", Path(words[-1]).read_text()).number, "sbatch: error: Batch job submission failed: ")
    elif command == "scontrol" and words[0] == "requeue":
        job = Job(words[1])
        job.write("requeue", "yes")
        os.kill(int(job.read("session")), signal.SIGKILL)
    elif command == "scancel":
        cancel(Job(words[-1]))
    elif command == "sacct":
        fail(1, "Slurm accounting storage is disabled")
    elif command == "squeue":
        asked = [each for each in option(words, "--jobs").split(",") if each]
        known = [job for job in jobs() if not asked or job.number in asked]
        if len(asked) == 1 and not known:
            fail(1, "slurm_load_jobs error: Invalid job id specified")
        for job in known:
            shown = {"waiting": "PENDING|Priority", "running": "RUNNING|None", "cancelled": "CANCELLED|None"}
            ended = "COMPLETED|None" if job.read("code") == "0" else "FAILED|NonZeroExitCode"
            mark = job.read("mark")
            by_mark = "%k" in option(words, "--format")
            print(f"{job.number}|{mark}|{mark}" if by_mark else f"{job.number}|{shown.get(job.read('state'), ended)}")


def pbs(command: str, words: list[str]) -> None:
    """``qsub``, ``qstat``, ``qselect`` and ``qdel``."""
    if command == "qsub":
        given = dict(each.split("=", 1) for each in option(words, "-v").split(",") if each)
        after = option(words, "-W").removeprefix("depend=afterany:").split(".")[0]
        answer(submit("pbs", Path(words[-1]).read_text(), after, **given).number + ".server", "qsub: ")
    elif command == "qdel":
        cancel(Job(words[-1].split(".")[0]))
    else:
        if "-x" in words and (FAKE / "no-history").exists():
            fail(1, f"{command}: PBS is not configured to maintain job history 0.server")
        if command == "qselect":
            assert option(words, "-u") == getpass.getuser()
            print("".join(f"{job.number}.server\n" for job in jobs() if "-x" in words or not job.has_ended), end="")
            return
        assert any(each[0].isdigit() for each in words), "all jobs of all users"
        asked = [each.split(".")[0] for each in words if each[0].isdigit()]
        known = [job for job in jobs() if not asked or job.number in asked if "-x" in words or not job.has_ended]
        letter = {"waiting": "Q", "running": "R"}
        print(json.dumps({"Jobs": {f"{job.number}.server": {
            "job_state": letter.get(job.read("state"), "F"), "Variable_List": json.loads(job.read("environ")),
            **({"Exit_status": 143, "substate": 91} if job.read("state") == "cancelled" else {}),
            **({"Exit_status": int(job.read("code"))} if job.read("state") == "ended" else {}),
            **({"resources_used": {"walltime": f"00:00:{job.read('elapsed')}"}} if job.read("elapsed") else {}),
        } for job in known}}))  # fmt: skip
        gone = [each for each in asked if each not in {job.number for job in known}]
        if gone:
            fail(153, "\n".join(f"qstat: Unknown Job Id {each}.server" for each in gone))


def lsf(command: str, words: list[str]) -> None:
    """``bsub``, ``bjobs`` and ``bkill``."""
    if command == "bsub":
        after = re.sub(r"\D", "", option(words, "-w"))
        attempt = {"HPCBENCH_ATTEMPT": os.environ.get("HPCBENCH_ATTEMPT", "1")}
        number = submit("lsf", sys.stdin.read(), after, **attempt).number
        answer(f"Job <{number}> is submitted to queue <normal>.", "")
    elif command == "bkill":
        cancel(Job(words[-1]))
    else:
        asked = [each for each in words if each.isdigit()]
        known = [job for job in jobs() if not asked or job.number in asked]
        if not known and not asked:
            fail(255, "No job found")
        for job in known:
            code = job.read("code")
            ended = "DONE|-|-" if code == "0" else f"EXIT|{code}|-"
            shown = {"waiting": "PEND|-|-", "running": "RUN|-|-", "cancelled": "EXIT|130|TERM_OWNER: killed by owner"}
            if "job_description" in words[words.index("-o") + 1]:
                print(f"{job.number}|{job.read('mark')}")
            elif words[words.index("-o") + 1] == "run_time":
                print(f"{job.read('elapsed') or 0} second(s)")
            else:
                print(f"{job.number}|{shown.get(job.read('state'), ended)}")
        gone = [each for each in asked if each not in {job.number for job in known}]
        if gone:
            fail(255, "\n".join(f"Job <{each}> is not found" for each in gone))


def flux(words: list[str]) -> None:
    """``flux batch``, ``jobs``, ``cancel``, and what a job asks about itself."""
    words = [each for each in words if each != "--parent"]
    if words[0] == "batch":
        given = dict([option(words, "--env").split("=", 1)]) if option(words, "--env") else {}
        after = option(words, "--dependency").removeprefix("afterany:").removeprefix("f")
        answer(f"f{submit('flux', Path(words[-1]).read_text(), after, **given).number}", "flux-batch: ERROR: ")
    elif words[0] == "getattr":
        print(f"f{os.environ['FLUX_JOB_ID']}")
    elif words[0] == "job":
        print(words[-1].removeprefix("f"))
    elif words[0] == "cancel":
        cancel(Job(words[-1].removeprefix("f")))
    elif words[0] == "jobs":
        asked = [each.removeprefix("f") for each in words[1:] if not each.startswith("-")]
        mark = option(words, "--name")
        known = [job for job in jobs() if (not asked or job.number in asked) and mark in ("", job.read("mark"))]
        for job in reversed(known):
            code = job.read("code")
            ended = f"{'CD' if code == '0' else 'F'}|{code}|"
            shown = {"waiting": "S|-|", "running": "R|-|", "cancelled": "CA|-|cancel"}
            whole = f"f{job.number}|{job.number}|{shown.get(job.read('state'), ended)}"
            forms = {"{id.dec}": job.number, "{runtime}": job.read("elapsed")}
            print(forms.get(option(words, "--format"), whole))
        gone = [each for each in asked if each not in {job.number for job in known}]
        if gone:
            fail(1, "\n".join(f"flux-jobs: ERROR: JobID {each} unknown" for each in gone))


def answer(words: str, prefix: str) -> None:
    """The answer to a submission, which may be lost."""
    if counts_down("lost"):
        fail(1, f"{prefix}Socket timed out on send/recv operation: connection")
    print(words, flush=True)


def main(command: str, words: list[str]) -> None:
    """One command of one of them."""
    kind = KIND[command]
    inside = command == "flux" and words[0] in ("getattr", "job")
    if (FAKE / "slow").exists():
        time.sleep(float((FAKE / "slow").read_text()))
    if not inside and ((FAKE / "down").exists() or counts_down("refuses")):
        fail(DOWN_CODE[kind], DOWN[kind])
    {"slurm": lambda: slurm(command, words), "pbs": lambda: pbs(command, words), "lsf": lambda: lsf(command, words),
     "flux": lambda: flux(words)}[kind]()  # fmt: skip


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
