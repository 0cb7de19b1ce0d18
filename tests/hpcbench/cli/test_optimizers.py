"""``hpcbench optimizers``: every optimizer with its options, quickly and within the page's width."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from hpcbench.application import find_application
from hpcbench.cli.main import main
from hpcbench.config.optimizers import OPTIMIZERS, options_of
from hpcbench.config.resolve import as_tree, resolve


def paragraphs_of(text: str) -> dict[str, str]:
    """What is printed of each optimizer, in one line."""
    return {part.split()[0]: part for part in text.replace("\n         ", " ").splitlines()}


def test_every_optimizer_is_listed_with_its_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["optimizers"]) == 0
    text = capsys.readouterr().out
    assert all(len(line) <= 100 for line in text.splitlines())
    paragraphs = paragraphs_of(text)
    assert list(paragraphs) == list(OPTIMIZERS)
    for name, info in OPTIMIZERS.items():
        assert info.description in paragraphs[name]
        assert all(option in paragraphs[name] for option in info.options)
    assert "max_grad_norm 1, decay_exclude []" in paragraphs["nvlamb"]
    assert "adapt_exclude [biases,norms]" in paragraphs["lars"]
    assert "trust_bounds [0,inf]" in paragraphs["lars"]
    assert "clip_rate true" in paragraphs["larc"]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_default_that_is_printed_can_be_given(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["optimizers"]) == 0
    paragraph = paragraphs_of(capsys.readouterr().out)[name]
    printed = dict(re.findall(r"([a-z_]+) (\[[^]]*\]|[^ ,]+)(?:, |$)", paragraph))
    given = {f"optim.{option}": printed[option] for option in OPTIMIZERS[name].options}
    config = resolve(find_application("cosmoflow"), None, [], {"optim.name": name, **given})
    wanted = OPTIMIZERS[name].options
    assert {option: as_tuple(value) for option, value in options_of(config.optim).items()} == wanted
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(as_tree(config)))  # as a run folder has it
    assert resolve(find_application("cosmoflow"), None, [tmp_path / "config.yaml"]).optim == config.optim


def as_tuple(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value
