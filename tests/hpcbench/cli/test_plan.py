"""``hpcbench plan``: a table that fits the page, and one line for bad input."""

from __future__ import annotations

import re

import pytest

from hpcbench.cli.main import main
from hpcbench.cli.plan import memory_bytes

SMOKE = ["plan", "cosmoflow", "--preset", "smoke", "--nodes", "2", "--gpus-per-node", "2"]


@pytest.mark.slow
def test_one_line_per_mesh(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(SMOKE) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 100
    assert lines[0] == "cosmoflow smoke on 2 nodes x 2 GPUs: 4 ranks, global batch 16, activations in bf16-mixed"
    assert re.fullmatch(r"State of a rank: parameters \S+ KiB, gradients \S+ KiB, adamw \S+ KiB", lines[1])
    assert re.fullmatch(r"Checkpoint: \S+ KiB of host memory on rank 0", lines[2])
    assert lines[4] == "Memory without the workspace of kernels, which is unmeasured on accelerators"
    header, rule, *rows = lines[6:]
    assert header.split() == ["mesh", "batch", "state", "saved", "peak", "input", "memory", "halo", "back", "reduce",
                              "B/MFLOP", "nodes"]  # fmt: skip
    assert set(rule) == {"-", " "}
    assert [row[:9].strip() for row in rows] == ["4 x 1", "2 x 2", "1 x (2x2)", "1 x 4"]
    assert [row.split()[-1] for row in rows] == ["1", "1", "2", "2"]


@pytest.mark.slow
def test_what_fits_and_what_keeps_no_batch(capsys: pytest.CaptureFixture[str]) -> None:
    more = ["--memory-per-gpu", "1.5MiB", "--global-batch-size", "2", "--train.precision", "32-true"]
    assert main([*SMOKE, *more]) == 0
    text = capsys.readouterr().out
    assert "activations in 32-true" in text
    assert text.count(" yes\n") == 2
    assert re.search(r"^4 x 1 \* .* yes\n1 x .* no$", text, re.MULTILINE)
    assert "*  not the global batch of 2: 4 x 1 has 4" in text


@pytest.mark.slow
def test_without_checkpoints_there_is_no_copy(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SMOKE, "--train.checkpoint_every", "0"]) == 0
    assert "Checkpoint" not in capsys.readouterr().out


def test_one_rank_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "cosmoflow", "--gpus-per-node", "1"]) == 0
    assert capsys.readouterr().out.startswith("cosmoflow smoke on 1 node x 1 GPU: 1 rank, global batch 4, ")
    assert main(["plan", "cosmoflow", "--gpus-per-node", "1", "--parallel.accelerator", "cpu"]) == 0
    assert "unmeasured" not in capsys.readouterr().out


@pytest.mark.slow
def test_what_is_not_formed(capsys: pytest.CaptureFixture[str]) -> None:
    settings = ["--data.height", "16", "--data.width", "32", "--parallel.shard_states"]
    assert main(["plan", "deepcam", "--gpus-per-node", "2", *settings]) == 0
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 100
    assert "Not formed: 1, the first of them 1 x 2: layer" in text
    assert "fewer than the 2 ranks" in " ".join(text.split())
    assert re.search(r"^State of a rank as \S+ x \S+, sharded: ", text, re.MULTILINE)


@pytest.mark.slow
def test_the_mesh_that_is_asked_for_is_among_the_lines(capsys: pytest.CaptureFixture[str]) -> None:
    """Splits along the second dimension alone, or along three, are tried where they are asked for."""
    for asked, line in (("1x2", "2 x (1x2)"), ("1x1x2", "2 x (1x1x2)"), ("2x1", "2 x 2"), ("4", "1 x 4")):
        assert main([*SMOKE, "--parallel.spatial", asked]) == 0
        rows = capsys.readouterr().out.splitlines()[8:]
        assert [row for row in rows if row.startswith(f"{line}  ")], asked
        assert len(rows) == (4 if line in ("2 x 2", "1 x 4") else 5)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (
            ["plan", "deepcam", "--gpus-per-node", "2", "--parallel.spatial", "1x1x2"],
            "parallel.spatial (1x1x2) splits a sample along three axes, and a sample has two dimensions; give at most "
            "two numbers, such as 2x2",
        ),
        (
            [*SMOKE, "--parallel.spatial", "8"],
            "parallel.spatial (8) splits a sample over 8 ranks, which must divide the 4 ranks of the run; start a "
            "multiple of 8",
        ),
        (
            ["plan", "cosmoflow", "--gpus-per-node", "16", "--parallel.spatial", "1x16"],
            "parallel.spatial (1x16) asks for the mesh 1 x (1x16) (data x spatial), which can't be formed: "
            "parallel.spatial splits a dimension over 16 ranks, of which each must have a part of the first block's "
            "8 planes (data.sample_size 16); split it over at most 8",
        ),
        (
            ["plan", "deepcam", "--gpus-per-node", "4", "--parallel.spatial", "4"],
            "has an output of size 3 in dimension 1 of a sample, fewer than the 4 ranks that it is split over; split "
            "over at most 3",
        ),
        ([*SMOKE, "--nodes", "0"], "--nodes (0) must be at least 1"),
        ([*SMOKE, "--gpus-per-node", "-1"], "--gpus-per-node (-1) must be at least 1"),
        ([*SMOKE, "--global-batch-size", "0"], "--global-batch-size (0) must be at least 1"),
        ([*SMOKE, "--memory-per-gpu", "lots"], "--memory-per-gpu (lots) must be a size above 0 such as 80GB or 40GiB"),
        ([*SMOKE, "--memory-per-gpu", "0GB"], "--memory-per-gpu (0GB) must be a size above 0"),
        ([*SMOKE, "--memory-per-gpu", "1MB"], "no mesh of 4 ranks fits 0.001 GB per GPU: the least is 1 x"),
        (["plan", "cosmoflow"], "the following arguments are required: --gpus-per-node"),
    ],
)
def test_bad_input_is_one_line(words: list[str], expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("hpcbench: error: ")
    assert captured.err.count("\n") == 1
    assert expected in captured.err


def test_sizes() -> None:
    assert memory_bytes("80GB") == 80 * 10**9
    assert memory_bytes("1.5 GiB") == 3 * 2**29
