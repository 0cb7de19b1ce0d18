"""Types the commands of a page one after the other into a folder, at sizes of seconds."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hpcbench.cli.main import main
from tests.docs.page_commands import ENDS
from tests.documented_commands import Command

SMALLER = (
    (r"--samples \d+", "--samples 16"),
    (r"--steps \d+", "--steps 6"),
    (r"--global-batch-size \d+", "--global-batch-size 4"),
    (r"--repeats \d+", "--repeats 1"),
    (r"--seeds \d+", "--seeds 1"),
    (r"--batch-sizes (?!4,8,16 )[\d,]+", "--batch-sizes 4,8"),  # those three are what a fit needs
    (r"--optimizers [\w,@]+", "--optimizers adamw"),
    (r"--lr-search [\d.,]+", "--lr-search 1,2 --lr-search-seeds 1 --lr-search-widen 0"),
    (r"--parallel.devices \d+", "--parallel.devices 2"),
    (r"--parallel.simulated_ranks \d+", "--parallel.simulated_ranks 4"),
    (r"mpiexec -n \d+ (?!.*2x2)", "mpiexec -n 2 "),
    (r"mpiexec -n \d+ (?=.*2x2)", "mpiexec -n 4 "),
    (r"srun -N \d+ --ntasks-per-node \d+", "srun -N 2 --ntasks-per-node 1"),
    (r"srun -N \d+ -n \d+", "srun -N 2 -n 2"),
    (r"--instance-nodes \d+", "--instance-nodes 1"),
    (r"--nodes \d+(,\d+)+", "--nodes 1,2"),
    (r"(--job .*)--nodes \d+", r"\1--nodes 2"),
    (r"^(?!.*--job)(.*)--nodes \d+(?![\d,])", r"\1--nodes 1"),
    (r"--cores-per-rank \d+", "--cores-per-rank 1"),
    (r"--ranks \d+", "--ranks 2"),
    (r"--cores \d+", "--cores 1"),
    (r"--gpus \d+", "--gpus 0"),
    (r"(hpcbench (?:characterize|kernels) \w.*)$", r"\1 --seconds 1"),
)
"""What of a command is smaller in a test: sizes alone, so that it keeps its options."""
PRESET = re.compile(r"--preset [\w-]+")
TINY = {
    "cosmoflow": "data: {sample_size: 8}\nsimulate: {universe_size: 8, train_samples: 32, validation_samples: 8}\n",
    "deepcam": "data: {height: 48, width: 96}\nsimulate: {train_samples: 16, validation_samples: 8}\n",
}
"""What each preset but ``smoke`` is here: smaller still, and of another shape, so that a command that needs a preset
and names none fails."""
TARGETS = {"cosmoflow": "train: {target: 0.9, max_epochs: 4}\n", "deepcam": "train: {target: 0.001, max_epochs: 4}\n"}
"""What a first epoch reaches; runs of so many steps have none."""
LEARNS = ("docs/tutorials/proposal.md", "train: {target: 0.495}\n")
"""A page whose last command needs epochs of runs that meet their target later than that, so that its preset keeps its
size; and the target, which takes them some epochs."""
LADDERS = ("hpcbench study strong", "hpcbench study weak", "hpcbench study throughput")
"""Commands that make three runs of each point unless ``--repeats`` says otherwise."""
RUN = re.compile(r"\bruns/(\w+)-\w+-\d{8}-\d{6}")
"""A run folder as its run names it."""
PLACES = ("data", "scratch", "disk/project", "disk/pscratch", "disk/lustre", "disk/eagle", "disk/eagle/myproject")
"""Where pages have datasets: relative to the folder, in ``$SCRATCH``, and below ``/``, which is the folder ``disk``."""


def make_datasets(root: Path) -> Path:
    """Both applications at their size of ``TINY``."""
    for application, settings in TINY.items():
        (root / f"{application}-steps.yaml").write_text(settings)
        (root / f"{application}.yaml").write_text(settings + TARGETS[application])
        (root / "learns.yaml").write_text(LEARNS[1])
        words = ["data", "simulate", application, "--preset", "smoke", "--config", str(root / f"{application}.yaml")]
        assert main([*words, "--processes", "1", "--out", str(root / "sets" / application)]) == 0
    return root


class Walk:
    """A folder with datasets, in which commands are typed."""

    def __init__(self, folder: Path, datasets: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder, self.datasets, self.patch = folder, datasets, patch
        self.started = False
        for place in PLACES:
            shutil.copytree(datasets / "sets", folder / place, copy_function=os.link)
        shutil.copytree(datasets / "sets/cosmoflow", folder / "disk/project/set", copy_function=os.link)
        patch.chdir(folder)
        patch.setenv("SCRATCH", str(folder / "scratch"))
        patch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
        patch.setenv("COLUMNS", "100")

    def type(self, command: Command) -> None:
        """Run a command at its small size; it must end with 0, or as ``ENDS`` says."""
        words = self.small(command)
        if words[1:3] == ["data", "simulate"]:  # for real
            shutil.rmtree(words[words.index("--out") + 1], ignore_errors=True)
        wanted = next((code for beginning, code in ENDS.items() if str(command).startswith(beginning)), 0)
        self.succeed(words, f"{command.source}: {command}", wanted)

    def succeed(self, words: list[str], why: str, wanted: int = 0) -> None:
        """Run these words, which must end with 0, or another code that is wanted."""
        print(f"$ {shlex.join(words)}", flush=True)
        code = self.run(words)
        assert code == wanted, f"{why}\nhere: {shlex.join(words)}\nended with {code}"

    def small(self, command: Command) -> list[str]:
        """The words of a command as they are here: smaller, with variables, folders and patterns replaced."""
        text = shlex.join(command.words)
        for pattern, instead in SMALLER:
            text = re.sub(pattern, instead, text)
        name = ("deepcam" if " deepcam " in text else "cosmoflow") + ("-steps" if "--steps" in text else "")
        if command.source == LEARNS[0] and "--site" not in text:
            name, text = "" if "--steps" in text else "learns", text.replace("--seeds 1", "--seeds 2")
        text = PRESET.sub("--preset smoke" + (f" --config {self.datasets / name}.yaml" if name else ""), text)
        if text.startswith(LADDERS):
            text += "" if "--repeats" in text else " --repeats 1"
            text = text.replace("studies/big", f"studies/big-{command.words[2]}")  # each help is a session of its own
        if text.startswith("hpcbench study convergence"):
            text += "" if "--seeds" in text else " --seeds 1"
        text = RUN.sub(lambda run: self.newest(run[1]), text)
        return [found for word in shlex.split(text) for found in self.expanded(word)]

    def expanded(self, word: str) -> list[str]:
        """What a shell makes of a word; ``/`` is the folder ``disk``, where ``/local`` has a folder for each node.

        A pattern without a folder stands in quotes on its page, and stays.
        """
        word = os.path.expandvars(word)
        if word.startswith("/local/") and "{node}" not in word:
            word = word.replace("/local/", "/local/{node}/")
        if word.startswith("/") and not word.startswith((str(self.folder), str(self.datasets))):
            word = f"{self.folder}/disk{word}"
        return sorted(str(path) for path in Path().glob(word)) if "*" in word and "/" in word else [word]

    def newest(self, application: str) -> str:
        """The last run folder of an application."""
        found = sorted(Path("runs").glob(f"{application}-*"), key=lambda path: path.stat().st_mtime)
        assert found, f"no run of {application} yet"
        return str(found[-1])

    def run(self, words: list[str]) -> int:
        """The exit code of these words.

        The first command of a page, and what a launcher starts, is a process as a user has it; the others are calls.
        """
        if words[0] != "hpcbench" or not self.started:
            self.started = True
            return subprocess.run(words, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"}).returncode
        self.patch.setattr(sys, "argv", words)
        try:
            return main(words[1:])
        except SystemExit as end:  # --help
            return int(end.code or 0)
