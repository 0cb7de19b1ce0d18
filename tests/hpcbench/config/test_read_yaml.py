"""Hostile files of settings: one line at once, with the file and the place in it, and nothing is left behind."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hpcbench.application import find_application
from hpcbench.cli.main import main
from hpcbench.config.read_yaml import MOST_BYTES, read_yaml
from hpcbench.config.resolve import config_class, known_keys, resolve
from staging.errors import InputError

COSMOFLOW = find_application("cosmoflow")
KEYS = [key for key, _ in known_keys(config_class(COSMOFLOW))]
AT_ONCE_S = 3.0
"""Seconds of the processor; each takes under one, and without limits minutes or for ever."""

TEXTS: dict[str, tuple[str | bytes, str]] = {
    "cycle": ("train: &a\n  seed: *a\n", "line 1: '&a' is an alias or anchor; write the values out"),
    "laughs": ("train:\n  seed: &b [1, 1]\n", "line 2: '&b' is an alias or anchor"),
    "unknown alias": ("train:\n  seed: *b\n", "line 2: '*b' is an alias or anchor"),
    "5,000 levels": ("train: " + "[" * 5000, "line 1: more than 20 levels"),
    "100,000 levels": ("[" * 100_000, "line 1: more than 20 levels"),
    "100,000 closed levels": ("[" * 100_000 + "]" * 100_000, "line 1: more than 20 levels"),
    "100,000 dashes": ("- " * 100_000, "line 1: more than 20 levels"),
    "100,000 questions": ("? " * 100_000, "line 1: more than 20 levels"),
    "levels by indentation": ("\n".join(" " * i + "a:" for i in range(600)), "line 20: more than 20 levels"),
    "impossible date": ("train:\n  seed: 2026-13-45\n", "train.seed (2026-13-45) must be a whole number or null"),
    "possible date": ("train:\n  seed: 2026-12-24\n", "train.seed (2026-12-24) must be a whole number or null"),
    "doubled key": ("optim:\n  lr: 1\n  lr: 2\n", "line 3: key 'lr' stands twice in one mapping; leave one of them"),
    "doubled group": ("train: {seed: 1}\ntrain: {seed: 2}\n", "line 2: key 'train' stands twice"),
    "doubled below a leaf": ("train: {target: {a: 1, a: 1}}\n", "line 1: key 'a' stands twice"),
    "object": ("train: !!python/object/apply:os.system [exit]\n", "line 1: tag 'tag:yaml.org,2002:python/object"),
    "own tag": ("train: !mine 1\n", "line 1: tag '!mine' makes no value that a setting takes; leave it out"),
    "merge": ("train:\n  <<: {seed: 1}\n", "unknown key 'train.<<.seed'; did you mean 'train.seed'?"),
    "number as key": ("1: 2\n", "line 1: key (1) is not text; put it in quotes or take it out"),
    "null as key": ("null: 2\n", "line 1: key (null) is not text"),
    "list as key": ("? [a]\n: 2\n", "line 1: key (a sequence) is not text"),
    "large": ("#" * (MOST_BYTES + 1), f"larger than {MOST_BYTES} bytes"),
    "many": ("schedule: {milestones: [" + "1," * 20_000 + "1]}", "line 1: more than 10000 values"),
    "long": ("train: {target: " + "x" * 10_000 + "}", "line 1: a text of 10000 characters; at most 8192 are read"),
    "NUL": (b"train:\n  seed: 1\0\n", "line 2: not valid YAML (character 0: special characters"),
    "NUL by its number": ('data: {root: "a\\0b"}\n', "data.root (a b) must not hold the control character '\\x00'"),
    "half a letter": ('data: {root: "\\ud800"}\n', "data.root ( ) must be UTF-8"),
    "no UTF-8": (b"train:\n  seed: \xff\n", "line 2: cannot read the configuration (not UTF-8)"),
    "UTF-16": ("train: {}".encode("utf-16"), "line 1: cannot read the configuration (not UTF-8)"),
    "no number": ("train:\n  seed: 0x_\n", "line 2: '0x_' is no number of at most 4000 digits"),
    "5,000 digits": ("train: {seed: " + "9" * 5000 + "}", "line 1: '9999"),
    "400 digits": ("train: {seed: " + "9" * 400 + "}", "train.seed (a number of more than 60 digits) must be at most"),
    "sixties": ("train: {seed: 1:30}", "line 1: 1:30 without quotes counts in sixties; put it in quotes"),
    "levels in quotes": ('schedule: {milestones: "' + "[" * 4000 + '"}', "must be a list of whole numbers"),
    "two documents": ("a: 1\n---\nb: 2\n", "line 2: not valid YAML"),
    "null": ("train: {max_epochs: null}", "train.max_epochs (null) must be a whole number; give one, or leave the key"),
    "null as a group": ("train:\n", "'train' is a group of keys, not a value; set for example train.KEY"),
    "list as a group": ("train: [1]\n", "'train' is a group of keys"),
    "not a number": ("optim: {lr: .nan}", "optim.lr (nan) must be a finite number; choose from 0 to 10000"),
    "unknown key": ("train: {sed: 1}", "unknown key 'train.sed'; did you mean 'train.seed'?"),
    "key of a command": (
        "train.seed: 1",
        "'train.seed' is the name for a command; write it in a file as train: {seed: ...",
    ),
    "unknown key like none": ("train: {qqqq: 1}", "unknown key 'train.qqqq'; none of the"),
    "unknown group": ("zzzz: {qqqq: {a: 1}}", "unknown key 'zzzz.qqqq.a'; none of the"),
    "extends": ("extends: [a, [b]]\n", "'extends' is for presets; leave it out and give --preset [a, [b]]"),
}


def said(path: str, capsys: pytest.CaptureFixture[str]) -> str:
    """The one line of a training with the file, which must have exit code 2 and end at once."""
    begun = time.process_time()
    assert main(["train", "cosmoflow", "--config", path]) == 2
    assert time.process_time() - begun < AT_ONCE_S
    out, err = capsys.readouterr()
    assert not out
    assert err.startswith("hpcbench: error: ")
    assert err.count("\n") == 1
    assert len(err) < 400
    return err


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", TEXTS)
def test_a_hostile_file_is_one_line_at_once(name: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, words = TEXTS[name]
    (here / "bad.yaml").write_bytes(text if isinstance(text, bytes) else text.encode())
    line = said("bad.yaml", capsys)
    assert (f"bad.yaml, {words}" if words.startswith("line ") else words) in line
    assert [path.name for path in here.iterdir()] == ["bad.yaml"]


@pytest.mark.parametrize("place", ["fifo", "folder", "/dev/zero", "/dev/full", "gone", "gone/gone", "x" * 5000, "a\0b"])
def test_what_is_no_file_is_one_line_at_once(place: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(here / "fifo")
    (here / "folder").mkdir()
    line = said(place, capsys) if len(place) < 100 else ""
    assert not line or "cannot read the configuration (" in line
    with pytest.raises(InputError, match="cannot read the configuration"):
        read_yaml(Path(place))
    assert sorted(path.name for path in here.iterdir()) == ["fifo", "folder"]


def test_a_link_to_a_file_and_an_empty_file_are_read(tmp_path: Path) -> None:
    (tmp_path / "file.yaml").write_text("\ufefftrain:\n  max_epochs: 010\n  seed: 1_000\n  target: 1e-3\n")
    (tmp_path / "link.yaml").symlink_to("file.yaml")
    (tmp_path / "empty.yaml").touch()
    config = resolve(COSMOFLOW, None, [tmp_path / "link.yaml", tmp_path / "empty.yaml"])
    assert (config.train.max_epochs, config.train.seed, config.train.target) == (10, 1000, 0.001)


LEAVES = [key.rpartition(".")[2] for key in KEYS]
GROUPS = sorted({key.partition(".")[0] for key in KEYS})
SIGNS = [*"[]{},:-?&*!|>'\"%@`#\n\t ~=<0aé\0\ufeff\u2028", "train", "seed", "optim", ": ", "\n  ", "- ", "---", "..."]
WORDS = [".nan", "null", "*a", "&a 1", "!!int 3", "2026-13-45", "[[", "0x_", "1:30", "1e3", "- -", "\0"]
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.sampled_from(WORDS)
NAMES = st.sampled_from(LEAVES) | st.text(max_size=5)
TREES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)
GROUPED = st.dictionaries(
    st.sampled_from(GROUPS), st.dictionaries(st.sampled_from(LEAVES), TREES, max_size=3), max_size=3
)
MARKS = st.lists(st.sampled_from(SIGNS), max_size=60).map("".join)
OFTEN = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def resolves_or_says_why(files: list[Path], overrides: dict[str, object]) -> None:
    """Success, or one line that is not too long."""
    message = ""
    try:
        resolve(COSMOFLOW, "smoke", files, overrides)
    except InputError as error:
        message = str(error)
    assert len(message.splitlines()) <= 1, message
    assert len(message) < 800


@pytest.mark.slow
@given(tree=TREES | GROUPED, lenient=st.booleans())
@OFTEN
def test_random_trees_resolve_or_are_one_line(tree: object, lenient: bool, tmp_path: Path) -> None:
    import yaml

    path = tmp_path / "tree.yaml"
    path.write_text(yaml.safe_dump(tree, allow_unicode=lenient), encoding="utf-8", errors="surrogatepass")
    resolves_or_says_why([path], {})


@given(content=st.binary(max_size=200) | MARKS.map(str.encode))
@OFTEN
def test_random_bytes_resolve_or_are_one_line(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "bytes.yaml"
    path.write_bytes(content)
    resolves_or_says_why([path], {})


@given(key=st.sampled_from(KEYS) | st.text(max_size=10), value=SCALARS | MARKS | TREES)
@OFTEN
def test_random_settings_resolve_or_are_one_line(key: str, value: object) -> None:
    resolves_or_says_why([], {key: value})
