"""The notebooks run from the repository's root and from their own folder, and what they find is so."""

from __future__ import annotations

import json
import math
import os
import re
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from hpcbench.mlperf.published import published_entries
from tests.documented_commands import ROOT

FOLDER = ROOT / "docs" / "notebooks"
NAMES = ("convergence_study", "joint_analysis", "staging_report")
PLACES = (".", "docs/notebooks")
"""Where a kernel may start."""
FOUND = {
    "convergence_study": "{f'{batch} {name}': [row.runs, row.reached, row['mean']] "
    "for (name, batch), row in table.iterrows()}",
    "joint_analysis": "{'factors': table['ratio'].to_list(), 'ratio': slow.score_s / fast.score_s, "
    "'systems': [slow.first.system, fast.first.system]}",
    "staging_report": "{'folder': str(folder), 'nodes': report['nodes'], 'ranks': report['ranks'], 'sizes': "
    "{str(path.relative_to(folder)): path.stat().st_size for path in folder.rglob('*') if path.is_file()}}",
}
"""What is asked of each notebook at its end, as an expression of its variables."""
SECONDS = 600
"""The most that a cell may take, on a machine that does much else."""


def stored(name: str) -> dict[str, Any]:
    """A notebook as it lies in the repository."""
    found: dict[str, Any] = json.loads((FOLDER / f"{name}.ipynb").read_text(encoding="utf-8"))
    return found


def executed(name: str, place: str) -> tuple[Any, dict[str, Any]]:
    """A notebook after its execution by a kernel of its own, and what is asked of it. Any error of a cell is raised."""
    nbclient: Any = import_module("nbclient")  # may be absent, and has no types for all of this
    nbformat: Any = import_module("nbformat")
    book = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
    nbformat.validate(book)
    book.cells.append(nbformat.v4.new_code_cell(f"import json\nprint(json.dumps({FOUND[name]}, default=float))"))
    nbclient.NotebookClient(book, timeout=SECONDS, resources={"metadata": {"path": str(ROOT / place)}}).execute()
    last = book.cells.pop()
    return book, json.loads("".join(output["text"] for output in last["outputs"]))


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for temporary files of a kernel that runs in this environment and takes no settings of the user's."""
    missing = [each for each in ("nbclient", "nbformat", "ipykernel") if find_spec(each) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} not installed; the extra docs brings it")
    for variable in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR"):
        monkeypatch.setenv(variable, str(tmp_path / "jupyter"))
    for variable in ("JUPYTER_PATH", "MPLBACKEND"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    return temporary


def figures(book: Any) -> int:
    """Pictures among the outputs of a notebook."""
    outputs = (output for cell in book.cells for output in cell.get("outputs", ()))
    return sum("image/png" in output.get("data", {}) for output in outputs)


def test_these_are_the_notebooks_and_the_page_lists_them() -> None:
    assert sorted(path.stem for path in FOLDER.glob("*.ipynb")) == sorted(NAMES)
    page = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert all(f"]({name}.ipynb)" in page for name in NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_stored_notebook_has_no_outputs(name: str) -> None:
    book = stored(name)
    assert (book["nbformat"], book["nbformat_minor"]) == (4, 5)
    assert 6 <= len(book["cells"]) <= 12
    assert len({cell["id"] for cell in book["cells"]}) == len(book["cells"])
    code = [cell for cell in book["cells"] if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)
    assert re.findall(r"[\"'\s(]/(?:home|root|tmp|Users|work)\b", json.dumps(book)) == []


@pytest.mark.parametrize("name", NAMES)
def test_what_a_notebook_links_to_is_there(name: str) -> None:
    texts = ("".join(cell["source"]) for cell in stored(name)["cells"] if cell["cell_type"] == "markdown")
    links = [link for text in texts for link in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text)]
    assert links
    assert [link for link in links if not (FOLDER / link).exists()] == []


@pytest.mark.slow
@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("place", PLACES)
def test_the_means_of_the_study_are_those_of_its_table(place: str) -> None:
    book, found = executed("convergence_study", place)
    assert figures(book) == 1
    text = (ROOT / "docs/studies/cosmoflow-convergence/table.txt").read_text(encoding="utf-8")
    rows = re.findall(r"^ *(\d+)  (\w+) +[\d.]+ .*?(\d) of ([1-9])(?: \+\d)? +([\d.]+|-) ", text, re.MULTILINE)
    assert len(rows) == len(found) >= 18
    for batch, name, reached, runs, mean in rows:
        assert found[f"{batch} {name}"][:2] == [int(runs), int(reached)]
        assert mean == "-" or found[f"{batch} {name}"][2] == pytest.approx(float(mean), rel=0.005)


@pytest.mark.slow
@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("place", PLACES)
def test_the_factors_multiply_to_the_ratio_of_the_published_times(place: str) -> None:
    book, found = executed("joint_analysis", place)
    assert figures(book) == 1
    assert math.prod(found["factors"]) == pytest.approx(found["ratio"], rel=1e-12)
    times = {entry.system: entry.time_to_train_s for entry in published_entries() if entry.mode == "time to train"}
    slow, fast = (times[system] for system in found["systems"])
    assert slow is not None
    assert fast is not None
    assert found["ratio"] == pytest.approx(slow / fast, rel=1e-6)


@pytest.mark.slow
@pytest.mark.usefixtures("mpiexec")
@pytest.mark.parametrize("place", PLACES)
def test_the_bytes_of_the_report_are_the_sizes_on_disk(place: str, kernel: Path) -> None:
    book, found = executed("staging_report", place)
    assert figures(book) == 1
    assert len(found["ranks"]) == len(found["nodes"]) == 2
    sizes = {Path(path): size for path, size in found["sizes"].items() if ".staging" not in Path(path).parts}
    for node in found["nodes"]:
        own = [size for path, size in sizes.items() if path.parts[:2] == ("nodes", node["name"])]
        assert (node["counters"]["files_landed"], node["counters"]["bytes_landed"]) == (len(own), sum(own))
    source = sum(size for path, size in sizes.items() if path.parts[0] == "set")
    assert sum(node["counters"]["bytes_read"] for node in found["nodes"]) == source > 0
    assert Path(found["folder"]).parent == kernel
    assert not Path(found["folder"]).exists(), "removed when the kernel ended"
