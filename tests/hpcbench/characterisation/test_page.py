"""The page and the text of a characterisation."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hpcbench.characterisation.input_tables import input_sheet
from hpcbench.characterisation.model import Curve, CurvePoint, Host, MovedBytes, ProfiledOperation, Roof, StepTimes
from hpcbench.characterisation.page import as_text, kernels_text, tiles, verdict, write_characterisation_page
from hpcbench.characterisation.plots import figures
from hpcbench.characterisation.tables import (
    bound_sheet,
    footprint_sheet,
    kernel_sheet,
    message_sheet,
    moved_sheet,
    rank_sheet,
    short_name,
)
from tests.hpcbench.characterisation.made import CONVOLUTION, RELU, made


def test_a_part_is_not_named_twice_and_a_tiny_share_is_not_nothing() -> None:
    slow = made(kernels=(replace(CONVOLUTION, read_bytes=1e12, alone_s=1e7),))
    assert verdict(slow).startswith("Of all parts, memory needs most time, ")
    assert kernel_sheet(slow).lines[0][-2] == "< 0.1 %"


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


def test_what_is_neither_counted_nor_measured_is_marked() -> None:
    read = made()
    assert "assumed" not in " ".join(input_sheet(read).as_text().split())
    unread = made(input=replace(read.input, reading=None))
    assert [line[0].endswith("(assumed)") for line in input_sheet(unread).lines] == [True, True, True, False, False]
    assert "the application's size of a sample in this form" in input_sheet(unread).note
    # files that were there, though no sample of them was read
    there = replace(unread, configuration={"data": {"root": "/data"}})
    assert "assumed" not in input_sheet(there).as_text()
    gathered = made(messages=(replace(read.messages[0], operation="all_gather"), *read.messages))
    network = [line[1] for line in bound_sheet(gathered).lines if line[0] == "network"]
    assert [words.endswith("(assumed)") for words in network] == [True, False]
    assert "A gather or a scatter takes half as long as a sum (assumed)." in bound_sheet(gathered).note
    assert "assumed" not in bound_sheet(read).note
    assert "a gather or a scatter is that of a ring (assumed)" in message_sheet(read).note


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
    assert text.endswith("- made by hand")
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
    assert "were not tried on counters; perf's events are Intel's" in " ".join(text.split())


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


def test_every_roof_of_products_is_within_the_picture() -> None:
    """That of bfloat16 is 30 times that of a step in float32."""
    half = Roof("compute", "bfloat16", 6e11, "FLOP/s", "")
    drawn = next(figure for figure in figures(made(roofs=(*made().roofs, half))) if figure.name == "roofline")
    assert drawn.figure.axes[0].get_ylim()[1] > 6e11


def test_what_grows_with_the_batch_is_per_sample() -> None:
    """Of 5 MiB that are saved of four samples, 1 MiB are weights in another precision."""
    lines = {line[0]: line[1:] for line in footprint_sheet(
        made(footprint=replace(made().footprint, saved_fixed=1 << 20))).lines}  # fmt: skip
    assert lines["saved for the backward pass"] == ("5.00 MiB", "1.00 MiB")
    assert lines["parameters"] == ("3.91 KiB", "")


def test_ranks_that_reach_the_same_have_one_share() -> None:
    times = made().steps[1]
    shares = {use: rank_sheet(made(steps=(replace(times, utilisation=use),))).lines[0][6]
              for use in ((0.25, 0.24), (0.2501, 0.2499), (1e-5, 1e-5), ())}  # fmt: skip
    assert list(shares.values()) == ["24.0 % to 25.0 %", "25.0 %", "< 0.1 %", ""]


def test_kernels_of_several_ranks_and_of_caches_say_so() -> None:
    """A convolution of 0.15 s at least, alone in 0.5 s and in 0.1 s, on two ranks and on one."""
    fast = made(kernels=(replace(CONVOLUTION, alone_s=0.1),), messages=())
    one = Host("node-1", "cpu", "A processor", 1, 1, 4, 16 << 30)
    notes = {
        (ranks, cached): kernel_sheet(replace(fast if cached else made(), host=one if ranks == 1 else made().host)).note
        for ranks in (1, 2) for cached in (False, True)
    }  # fmt: skip
    assert {key: ("median" in note, "a cache holds" in note) for key, note in notes.items()} == {
        (ranks, cached): (ranks == 2, cached) for ranks in (1, 2) for cached in (False, True)
    }


def test_counts_alone_name_no_roof() -> None:
    found = made(roofs=(), curves=(), steps=(), kernels=(replace(CONVOLUTION, alone_s=None),))
    assert kernel_sheet(found).lines[0][3:] == ("-",) * 5
