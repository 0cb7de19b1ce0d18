"""Which options a machine has, and what is said of the others."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from hpcbench.config.resolve import known_keys
from hpcbench.config.schema import RunConfig
from hpcbench.study.gains.machine import no_compiler, no_graph, no_tf32
from hpcbench.study.gains.options import FACTORS, PLAIN, Machine, Option, candidates, combined, keep
from tests.hpcbench.study.gains.conftest import PROCESSOR, SHAPE


def labels(machine: Machine = PROCESSOR, **shape: int) -> tuple[list[str], dict[str, str]]:
    """Labels of the options, and reasons of the others."""
    options, missing = candidates(machine, replace(SHAPE, **shape))
    return [each.label for each in options], {each.label: each.reason for each in missing}


def test_a_processor_has_every_option_but_those_of_a_gpu() -> None:
    found, missing = labels()
    assert found == [
        "bf16", "fp16", "compiled", "channels last", "fused optimizer", "overlap", "overlap, 4 buckets",
        "overlap, 4 buckets, forward", "gradients summed as bf16", "gradients summed as fp16",
        "a reader process a rank", "DALI", "1 rank x 2 threads",
    ]  # fmt: skip
    assert missing == {"TF32": "no GPU", "CUDA graph": "no GPU"}


def test_a_gpu_has_tf32_and_graphs_and_a_rank_each() -> None:
    found, missing = labels(Machine(16, accelerators=2))
    assert {"TF32", "CUDA graph"} <= set(found)
    assert missing == {"other numbers of ranks": "each rank has an accelerator to itself"}


def test_one_rank_has_no_messages() -> None:
    found, missing = labels(ranks=1)
    assert not [label for label in found if "overlap" in label or "summed" in label]
    assert missing["overlap"] == "one rank sends nothing; give --ranks 2 or more"
    assert "2 ranks x 1 thread" in found


def test_large_models_are_tried_in_one_bucket_as_well() -> None:
    # The 226 MB of gradients that DeepCAM has travel in nine of torch's buckets of 25 MiB.
    found, _ = labels(gradient_bytes=225_800_000)
    assert [label for label in found if "bucket" in label] == ["overlap, one bucket", "overlap, 4 buckets"]
    assert "overlap, forward" in found


def test_ranks_divide_cores_and_batch() -> None:
    found, _ = labels(Machine(12), global_batch_size=24)
    assert [label for label in found if " x " in label] == [
        "1 rank x 12 threads", "3 ranks x 4 threads", "4 ranks x 3 threads", "6 ranks x 2 threads",
        "12 ranks x 1 thread",
    ]  # fmt: skip
    _, missing = labels(Machine(1), ranks=1, global_batch_size=7)
    assert missing["other numbers of ranks"] == "none divides both 1 core and a global batch of 7"


def test_every_setting_is_one_of_the_suite_and_every_factor_is_known() -> None:
    known = {key for key, _ in known_keys(RunConfig)}
    options, _ = candidates(Machine(4, accelerators=2), SHAPE)
    assert {key for each in options for key in each.settings} | set(PLAIN) <= known
    assert {each.factor for each in options} | {"ranks"} == set(FACTORS)


def test_names_are_all_different_and_name_folders() -> None:
    options, _ = candidates(Machine(12), replace(SHAPE, global_batch_size=24, gradient_bytes=2**30))
    names = [each.name for each in options]
    assert len(set(names)) == len(names)
    assert all("/" not in name and "_" not in name for name in names)


def test_what_the_command_holds_is_no_option() -> None:
    kept, missing = keep(candidates(PROCESSOR, SHAPE)[0], {"train.precision": "bf16-mixed"})
    assert not {"bf16", "fp16"} & {each.name for each in kept}
    assert {each.reason for each in missing} == {"train.precision is bf16-mixed in all runs, as the command says"}


def test_options_together_have_the_settings_of_each() -> None:
    bf16, overlap = Option("bf16", "precision", "bf16", {"a": "1"}), Option("o", "messages", "overlap", {"b": "2"})
    both = combined([bf16, overlap])
    assert (both.name, both.label) == ("together-bf16+o", "together: bf16, overlap")
    assert both.settings == {"a": "1", "b": "2"}
    assert both.ranks is None


def test_one_rank_takes_no_options_of_messages_along() -> None:
    options, _ = candidates(PROCESSOR, SHAPE)
    named = {each.name: each for each in options}
    both = combined([named["bf16"], named["overlap"], named["ranks-1"]])
    assert (both.name, both.ranks) == ("together-bf16+ranks-1", 1)
    assert "parallel.overlap" not in both.settings


def test_a_graph_takes_no_overlap_along_but_sums_of_a_smaller_type() -> None:
    """The gradients of a graphed step are sent when it has ended (``TrainingStep.accumulate``)."""
    options, _ = candidates(Machine(16, accelerators=2), SHAPE)
    named = {each.name: each for each in options}
    both = combined([named["graph"], named["overlap-4"], named["bf16-sums"]])
    assert both.name == "together-graph+bf16-sums"
    assert not {"parallel.overlap", "parallel.bucket_bytes"} & set(both.settings)


def test_a_compiler_is_found_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (
        no_compiler(0, {"CXX": "/nowhere/c++"}) == "torch.compile needs a C++ compiler; none of /nowhere/c++ is found"
    )
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}" if name == "clang++" else None)
    assert no_compiler(0, {}) == ""
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert no_compiler(0, {}) == "torch.compile needs a C++ compiler; none of g++, clang++ is found"
    monkeypatch.setattr("hpcbench.study.gains.machine.find_spec", lambda name: None)
    assert no_compiler(2, {}) == "torch.compile needs the package triton, which is not installed"


@pytest.mark.parametrize(
    ("capability", "hip", "expected"),
    [
        ((9, 0), None, ""),
        ((7, 0), None, "needs an NVIDIA GPU of compute capability 8.0 or more; this one has 7.0"),
        ((9, 0), "6.2", "needs an NVIDIA GPU of compute capability 8.0 or more; these accelerators are others"),
    ],
)
def test_tf32_is_of_nvidia_since_ampere(
    monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int], hip: str | None, expected: str
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda: capability)
    monkeypatch.setattr("torch.version.hip", hip)
    assert no_tf32(1) == expected
    assert no_graph(1) == ""


def test_a_processor_has_neither_tf32_nor_graphs() -> None:
    assert no_tf32(0).endswith("this training is on a processor")
    assert no_graph(0) == "captures the kernels of a GPU; this training is on a processor"


def test_buckets_are_counted_up() -> None:
    assert replace(SHAPE, gradient_bytes=100, bucket_bytes=40).buckets == math.ceil(100 / 40)
