"""A ReFrame test that trains an application of hpcbench: whether it reaches its target, and how fast.

    reframe -c contrib/reframe/hpcbench_train.py -r -P application=cosmoflow -P preset=smoke -P nodes=1

docs/contrib.md says what a site sets. ReFrame runs ``hpcbench`` as a command; nothing of it is imported here.
"""

import json
import shlex
from pathlib import Path
from typing import Any

import reframe as rfm
import reframe.utility.sanity as sn
import reframe.utility.typecheck as typ
import yaml
from reframe.core.builtins import parameter, run_before, sanity_function, variable
from reframe.core.exceptions import ReframeError, SanityError

UNITS = {"samples_per_s": "samples/s", "time_to_solution": "s", "staging_rate": "MB/s"}
"""What is measured. A reference of another name is an error, so that a misspelt one is noticed."""
RUN = "run"
"""The run folder, in the stage folder of the test."""


@rfm.simple_test
class HpcbenchTrain(rfm.RunOnlyRegressionTest):
    """Train an application to the target of a preset, on some nodes."""

    application = parameter(["cosmoflow", "deepcam"], type=str)
    preset = parameter(["smoke"], type=str)
    nodes = parameter([1], type=int)

    data = variable(str, value="")
    """Folder with a dataset for each application, by its name; empty simulates one of the preset's size."""
    stage_to = variable(str, value="")
    """Node-local folder that the dataset is staged to, such as $TMPDIR/set; empty reads it where it lies."""
    ranks_per_node = variable(int, value=1)
    gpus_per_node = variable(int, value=0)
    """Asked for as the resource ``gpu`` of the site's ReFrame configuration; 0 asks for none."""
    settings = variable(typ.List[str], value=[])
    """Dotted settings of hpcbench, such as --train.max_epochs=2."""
    references = variable(str, value="")
    """YAML file with what is expected: system:partition, in it APPLICATION-PRESET-NODES, in that the figures."""

    descr = "hpcbench: training to a target quality"
    valid_systems = ["*"]
    valid_prog_environs = ["*"]
    executable = "hpcbench"
    time_limit = "1h"
    tags = {"hpcbench", "training"}
    keep_files = ["run/*.json", "run/*.csv", "run/mllog.txt", "run/report.html"]

    @run_before("run")
    def ask_for_nodes(self) -> None:
        """Ranks and devices of the job."""
        self.num_tasks = self.nodes * self.ranks_per_node
        self.num_tasks_per_node = self.ranks_per_node
        if self.gpus_per_node:
            self.extra_resources = {"gpu": {"num_gpus_per_node": str(self.gpus_per_node)}}

    @run_before("run")
    def write_command(self) -> None:
        """The words of the command, quoted, since ReFrame puts them into a script as they are."""
        chosen = [self.application, "--preset", self.preset]
        root = str(Path(self.data) / self.application) if self.data else "data"
        if not self.data:
            simulate = [self.executable, "data", "simulate", *chosen, "--out", root, *self.settings]
            self.prerun_cmds = [shlex.join(simulate)]
        words = ["train", *chosen, f"--data.root={root}", "--run-dir", RUN, *self.settings]
        if self.stage_to:
            words.append(f"--staging.destination={self.stage_to}")
        self.executable_opts = [shlex.quote(word) for word in words]
        self.postrun_cmds = ['echo "exit code of hpcbench: $?"']

    @run_before("run")
    def read_references(self) -> None:
        """What the site expects of this test on this partition; where it says nothing, figures are recorded alone."""
        self.expected: dict[str, list[float | None]] = {}
        if self.references:
            known = yaml.safe_load(Path(self.references).read_text(encoding="utf-8"))
            of_partition = known.get(self.current_partition.fullname) or {}
            self.expected = of_partition.get(f"{self.application}-{self.preset}-{self.nodes}") or {}
        unknown = sorted(set(self.expected) - set(UNITS))
        if unknown:
            raise ReframeError(f"{self.references}: no figure {unknown[0]!r}; there are {', '.join(UNITS)}")

    @sanity_function
    def reached_its_target(self) -> bool:
        """The exit code is 0, the summary of the run says the same, and all that has a reference was measured."""
        code = sn.evaluate(sn.extractsingle(r"^exit code of hpcbench: (\d+)$", self.stdout, 1, int))
        summary = written(self.run_folder(), "summary.json")
        if code != 0 or summary.get("status") != "success":
            why = f"{summary['status']}: {summary['reason']}" if summary else f"no summary; {last_line(self.stderr)}"
            raise SanityError(f"hpcbench ended with exit code {code}, {why}")
        missing = sorted(set(self.expected) - set(figures(self.run_folder())))
        if missing:
            raise SanityError(f"there is a reference for {missing[0]}, which this run did not measure")
        return True

    @run_before("performance")
    def compare(self) -> None:
        """The figures of the run, beside what the site expects."""
        measured = figures(self.run_folder())
        self.perf_variables = {
            name: sn.make_performance_function(sn.defer(value), UNITS[name]) for name, value in measured.items()
        }
        partition = self.current_partition.fullname
        self.reference = {partition: {name: (*bounds, UNITS[name]) for name, bounds in self.expected.items()}}

    def run_folder(self) -> Path:
        """Where the run left its files."""
        return Path(self.stagedir) / RUN


def figures(run: Path) -> dict[str, float]:
    """What a run measured, in the units of ``UNITS``."""
    summary, staging = written(run, "summary.json"), written(run, "staging.json")
    measured = {
        "samples_per_s": summary.get("warm_samples_per_s") or summary.get("samples_per_s"),
        "time_to_solution": summary.get("time_to_solution_s"),
        "staging_rate": staging["bytes_per_s"] / 1e6 if staging.get("bytes_per_s") else None,
    }
    return {name: value for name, value in measured.items() if value is not None}


def written(run: Path, name: str) -> dict[str, Any]:
    """A file of a run folder; empty where the run did not write it."""
    path = run / name
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def last_line(path: object) -> str:
    """The last line of a file, for a message."""
    lines = Path(str(path)).read_text(encoding="utf-8", errors="replace").split("\n")
    return next((line for line in reversed(lines) if line), "nothing in the error output")
