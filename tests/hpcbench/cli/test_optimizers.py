"""``hpcbench optimizers``: every optimizer with its options, quickly and within the page's width."""

from __future__ import annotations

import pytest

from hpcbench.cli.main import main
from hpcbench.config.optimizers import OPTIMIZERS


def test_every_optimizer_is_listed_with_its_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["optimizers"]) == 0
    text = capsys.readouterr().out
    assert all(len(line) <= 100 for line in text.splitlines())
    paragraphs = {part.split()[0]: part for part in text.replace("\n         ", " ").splitlines()}
    assert list(paragraphs) == list(OPTIMIZERS)
    for name, info in OPTIMIZERS.items():
        assert info.description in paragraphs[name]
        assert all(option in paragraphs[name] for option in info.options)
    assert "max_grad_norm 1, decay_exclude []" in paragraphs["nvlamb"]
    assert "adapt_exclude [biases,norms]" in paragraphs["lars"]
    assert "trust_bounds [0,inf]" in paragraphs["lars"]
    assert "clip_rate true" in paragraphs["larc"]
