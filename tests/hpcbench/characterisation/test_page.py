"""The page and the text of a characterisation."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hpcbench.characterisation.model import Curve, CurvePoint, Host, MovedBytes, ProfiledOperation, StepTimes
from hpcbench.characterisation.page import as_text, kernels_text, tiles, verdict, write_characterisation_page
from hpcbench.characterisation.plots import figures
from hpcbench.characterisation.tables import moved_sheet, rank_sheet, short_name
from tests.hpcbench.characterisation.made import CONVOLUTION, RELU, made


def test_the_text_fits_and_says_what_holds_the_step_up() -> None:
    text = as_text(made(moved=(MovedBytes("perf", "memory", 12e8, 12e7, steps=10),)))
    assert max(map(len, text.splitlines())) <= 100
    said = " ".join(text.split())
    assert "Of all parts, compute (float32) needs most time, 300 ms a step at least; the step took 1.25 s" in said
    assert "4.17 times that" in said
    # Of 33 MB at least on each of two ranks, the counter of the node saw 132 MB in a step.
    assert "2.00 x" in next(line for line in text.splitlines() if line.startswith("perf"))
    steps = text[text.index("Steps on some") :].splitlines()
    assert steps[3].split()[:3] == ["1", "5", "1.00"]
    assert "24.0 % to 25.0 %" in steps[4]


@pytest.mark.parametrize(
    ("accumulation", "spatial", "samples_per_s"),
    [(1, "1", "12.8"), (4, "1", "51.2"), (1, "2", "6.40"), (4, "2x1", "25.6")],
)
def test_samples_of_all_ranks_are_those_of_all_passes_and_each_once(
    accumulation: int, spatial: str, samples_per_s: str
) -> None:
    """Four ranks take four samples in each pass of a step of 1.25 s, and ranks that share samples take the same."""
    times = StepTimes(4, 1, 4, 5, 1.25, 1.1, 1.5, (1.25,) * 4, (5e9,) * 4)
    found = made(steps=(times,), accumulation=accumulation, configuration={"parallel": {"spatial": spatial}})
    assert rank_sheet(found).lines[0][4] == samples_per_s


@pytest.mark.parametrize(("spatial", "shared"), [("1", False), ("2x2", True)])
def test_numbers_of_ranks_that_share_samples_say_so(spatial: str, shared: bool) -> None:
    found = {tile["label"]: tile["note"] for tile in tiles(made(configuration={"parallel": {"spatial": spatial}}))}
    assert found["Samples"] == f"{'4 ranks that share samples' if shared else 'a rank'}, all ranks at work"
    each = "per sample, on each of 4 ranks that share it; " if shared else "per sample; "
    assert all(found[label].startswith(each) for label in ("Operations", "Least bytes", "Activations"))


@pytest.mark.parametrize(
    ("tool", "nodes", "ranks", "ratio"),
    [("perf", 1, 4, "2.00 x"), ("perf", 2, 8, "2.00 x"), ("perf", 2, 2, "8.00 x"), ("ncu", 1, 4, "8.00 x")],
)
def test_perf_counts_all_ranks_of_a_node_and_other_tools_one_process(
    tool: str, nodes: int, ranks: int, ratio: str
) -> None:
    """A rank's step moves 33 MB at least; the counters saw 264 MB in a step."""
    host = Host("node-1", "cpu", "A processor", nodes, ranks, 1, 16 << 30)
    sheet = moved_sheet(made(host=host, moved=(MovedBytes(tool, "memory", 2.64e9, None, steps=10),)))
    assert sheet.lines[0][5] == ratio
    assert "perf counts a node" in sheet.note


def test_counts_alone_claim_nothing_of_a_machine() -> None:
    found = made(roofs=(), curves=(), steps=(), profile={})
    assert verdict(found) == "Nothing was measured: the counts are those of any machine."
    text = as_text(found)
    assert "What a step asks of each part" not in text
    assert "Kernels by least bytes" in as_text(replace(found, kernels=tuple(
        replace(kernel, alone_s=None) for kernel in found.kernels)))  # fmt: skip


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("without", [{"flop": 0.0}, {"read_bytes": 0.0, "written_bytes": 0.0},
                                     {"flop": 0.0, "read_bytes": 0.0, "written_bytes": 0.0}])  # fmt: skip
def test_kernels_without_operations_or_bytes_have_a_page(without: dict[str, float]) -> None:
    found = made(kernels=tuple(replace(kernel, **without) for kernel in made().kernels), messages=())
    assert "needs most time" in verdict(found)
    assert [tile["label"] for tile in tiles(found)] == ["Operations", "Least bytes", "Activations", "Samples"]
    assert "least_times" in [figure.name for figure in figures(found)]
    assert as_text(found)


def test_names_of_kernels_are_short() -> None:
    depthwise = replace(CONVOLUTION, operation="convolution_backward", kind="depthwise convolution")
    assert short_name(depthwise) == "depthwise conv back"
    assert short_name(replace(RELU, operation="max_pool3d_with_indices_backward")) == "max_pool3d back"
    assert short_name(replace(RELU, operation="native_batch_norm")) == "batch_norm"


def test_kernels_of_one_kind() -> None:
    text = kernels_text(made(), "convolution", 5)
    assert "convolution" in text
    assert "relu_" not in text
    assert "all-reduce" in text


def test_messages_are_ranked_with_kernels_and_on_their_own() -> None:
    link = Curve("exchange", 2, 1, "within a node", (CurvePoint(1000, 5.5e-6),), 5e-6, 2e9)
    sums = replace(made().messages[0], alone_s=0.01)
    found = made(messages=(sums,), curves=(*made().curves, link))

    def rows(kind: str | None) -> list[str]:
        lines = kernels_text(found, kind, 5).splitlines()
        start = next(number for number, line in enumerate(lines) if line.startswith("operation"))
        return lines[start + 2 : lines.index("At least and alone are of one execution, lost is of all in a step.")]

    assert [row.split()[0] for row in rows(None)] == ["convolution", "all-reduce", "sgd", "relu_"]
    assert [row.split()[0] for row in rows("convolution")] == ["convolution"]
    (row,) = rows("message")
    # A sum of 2 MB of 1.005 ms at least takes 10 ms, twice in a step.
    assert row.split() == ["all-reduce", "gradients,", "1.91", "MiB,", "within", "a", "node", "2", "network", "1.01",
                           "ms", "10.0", "ms", "10.1", "%", "18.0", "ms"]  # fmt: skip
    assert max(map(len, kernels_text(found, None, 5).splitlines())) <= 100
    assert "Kernels and messages by the time that they lose" in as_text(found)


def test_the_longest_operations_of_the_profile() -> None:
    name = "void cudnn::ops::nchwToNhwcKernel<float, float, float, false, true>"
    longest = (ProfiledOperation("aten::convolution", "convolution", 0.55, 2), ProfiledOperation(name, "copy", 0.1, 7))
    lines = as_text(made(longest=longest)).splitlines()
    row = next(line for line in lines if line.startswith("aten::convolution"))
    assert row.split() == ["aten::convolution", "convolution", "2.00", "550", "ms", "50.0", "%"]
    assert any(line.startswith("void cudnn::ops::nchwToNhwcKernel<float, ...") for line in lines)
    assert max(map(len, lines)) <= 100
    assert "Longest operations" not in as_text(made())


def test_operations_of_an_epoch_and_of_a_log_are_shown() -> None:
    text = as_text(made(moved=(MovedBytes("darshan", "/lustre", 3500, 0, operations=4_321),)))
    # 12 calls of a sample, 128 samples
    assert next(line for line in text.splitlines() if line.startswith("read calls of an epoch")).split()[-1] == "1,536"
    row = next(line for line in text.splitlines() if line.startswith("darshan"))
    assert row.split()[:3] == ["darshan", "/lustre", "4,321"]
    assert "untried: none of the tools was at hand" in " ".join(text.split())


@pytest.mark.slow
def test_the_page_stands_alone(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    write_characterisation_page(made(), path, "hpcbench characterize cosmoflow")
    page = path.read_text()
    assert "Result not verified by MLCommons Association" in page
    assert page.count("<svg") == 2
    assert "http" not in page.replace("http://www.w3.org", "")
    assert "made by hand" in page
    for words in ("memory: 1.00 GB/s", "storage /scratch: 100 MB/s", "float32: 20.0 GFLOP/s", "the step: 4.80 GFLOP/s"):
        assert words in page
    write_characterisation_page(made(roofs=(), curves=(), steps=()), tmp_path / "counts.html")
    assert "<svg" not in (tmp_path / "counts.html").read_text()
