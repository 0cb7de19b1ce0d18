"""What is written for Hatchet, Thicket, Extra-P and DLIO; with the packages themselves where they are installed."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

from hpcbench.characterisation.exports import (
    dlio_workload,
    extra_p_lines,
    hatchet_literal,
    write_dlio,
    write_extra_p,
    write_hatchet,
)
from hpcbench.characterisation.model import InputData
from staging.errors import InputError
from tests.hpcbench.characterisation.made import made

DLIO_KEYS = {
    "model": {"name", "model_size_bytes"}, "framework": set(), "workflow": {"generate_data", "train", "evaluation"},
    "dataset": {"data_folder", "format", "num_files_train", "num_files_eval", "num_samples_per_file",
                "record_length_bytes", "record_length", "compression"},
    "reader": {"data_loader", "batch_size", "file_shuffle", "sample_shuffle", "preprocess_time"},
    "train": {"epochs", "computation_time"},
}  # fmt: skip
"""Of those that DLIO's ``LoadConfig`` reads; versions before 3 read ``record_length``."""


def test_the_tree_of_hatchet_adds_up() -> None:
    (root,) = hatchet_literal(made())
    assert root["metrics"]["flop (inc)"] == 2 * 3e9 + 1e6
    assert root["metrics"]["time (inc)"] == pytest.approx(2 * 0.5 + 0.012 + 0.01)
    assert [child["frame"]["name"] for child in root["children"]] == ["forward", "optimizer"]

    def check(node: dict[str, Any]) -> None:
        for child in node["children"]:
            check(child)
        for name in ("time", "flop", "bytes", "calls"):
            below = sum(child["metrics"][f"{name} (inc)"] for child in node["children"])
            assert node["metrics"][f"{name} (inc)"] == pytest.approx(node["metrics"][name] + below)

    check(root)


def test_extra_p_has_each_rank_as_a_repetition(tmp_path: Path) -> None:
    times = [(line["params"]["ranks"], line["value"]) for line in extra_p_lines(made()) if line["metric"] == "time"]
    assert times == [(1, 1.0), (2, 1.2), (2, 1.25)]
    with pytest.raises(InputError, match="--extra-p writes times of steps, and none were measured"):
        write_extra_p(made(steps=()), tmp_path / "lines.jsonl")


def test_a_workload_of_dlio(tmp_path: Path) -> None:
    write_dlio(made(), tmp_path / "workload.yaml")
    found = yaml.safe_load((tmp_path / "workload.yaml").read_text())
    assert found == dlio_workload(made())
    for section, values in found.items():
        assert set(values if isinstance(values, dict) else ()) <= DLIO_KEYS[section]
    assert found["framework"] == found["reader"]["data_loader"] == "tensorflow", "DLIO refuses TFRecords with PyTorch's"
    assert (found["dataset"]["format"], found["dataset"]["compression"]) == ("tfrecord", "gzip")
    assert (found["dataset"]["num_files_train"], found["dataset"]["record_length_bytes"]) == (128, 2_500_000)
    assert (found["workflow"]["evaluation"], found["dataset"]["num_files_eval"]) == (True, 64)
    other = dlio_workload(made(input=replace(made().input, form="npy", validation_samples=None)))
    assert other["framework"] == other["reader"]["data_loader"] == "pytorch"
    assert (other["workflow"]["evaluation"], other["dataset"]["num_files_eval"]) == (False, 0)
    assert (found["reader"]["batch_size"], found["train"]["computation_time"]) == (4, 1.25)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"steps": ()}, "--dlio needs a measured step"),
        ({"input": InputData("tfrecord", None, None, None, None, 4.0)}, "--dlio needs the size of the dataset"),
        ({"input": InputData("zarr", 1, 1, 4.0, 1, 4.0)}, "DLIO has no format 'zarr'"),
    ],
)
def test_what_dlio_cannot_have(change: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=said):
        write_dlio(made(**change), tmp_path / "workload.yaml")
    assert not (tmp_path / "workload.yaml").exists()


def needs(package: str) -> pytest.MarkDecorator:
    reason = f"needs {package}, which pins old numpy and pandas: nox -s exchange has an environment of its own"
    return pytest.mark.skipif(find_spec(package) is None, reason=reason)


@pytest.mark.slow
@needs("hatchet")
def test_hatchet_reads_it(tmp_path: Path) -> None:
    import hatchet

    write_hatchet(made(), tmp_path / "tree.json")
    frame = hatchet.GraphFrame.from_literal(json.loads((tmp_path / "tree.json").read_text()))
    assert frame.dataframe["flop"].sum() == 2 * 3e9 + 1e6
    kernels = frame.filter(lambda row: row["flop"] > 1e9)
    assert len(kernels.dataframe) == 1


@pytest.mark.slow
@needs("thicket")
def test_thicket_reads_it(tmp_path: Path) -> None:
    import thicket

    write_hatchet(made(), tmp_path / "tree.json")
    found = thicket.Thicket.from_literal(json.loads((tmp_path / "tree.json").read_text()))
    assert found.dataframe["time"].sum() == pytest.approx(2 * 0.5 + 0.012 + 0.01)


@pytest.mark.slow
@needs("extrap")
def test_extra_p_reads_it(tmp_path: Path) -> None:
    from extrap.fileio.file_reader.jsonlines_file_reader import read_jsonlines_file

    write_extra_p(made(), tmp_path / "lines.jsonl")
    experiment = read_jsonlines_file(str(tmp_path / "lines.jsonl"))
    assert [parameter.name for parameter in experiment.parameters] == ["ranks"]
    assert [tuple(each) for each in experiment.coordinates] == [(1,), (2,)]
    assert {str(metric) for metric in experiment.metrics} == {"time", "flop/s"}
