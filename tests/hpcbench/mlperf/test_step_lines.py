"""Which lines of a log are of the run: by the key that JSON reads, however the line is written."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcbench.mlperf.step_lines import OF_STEPS, is_of_the_run
from hpcbench.results.mllog_reader import MARK

KEYS = st.sampled_from([*sorted(OF_STEPS), "run_stop", "eval_error", "learning_rates", "", "train_loss "])
SEPARATORS = st.sampled_from([(", ", ": "), (",", ":"), (" , ", " :  ")])


@given(KEYS, SEPARATORS, st.booleans())
def test_the_key_decides_however_the_line_is_spaced(key: str, separators: tuple[str, str], key_first: bool) -> None:
    entry = {"key": key, "value": 1, "metadata": {"file": "a.py"}}
    if not key_first:
        entry = dict(reversed(entry.items()))
    assert is_of_the_run(MARK + json.dumps(entry, separators=separators)) == (key not in OF_STEPS)


@pytest.mark.parametrize(
    "line",
    ['{"value": 1}', '{"key": 3}', '{"key": "train_loss', '{"key": "train_loss\\u0041"}', '{"key": "a\\"train_loss"}',
     "", '{"metadata": {"key": "train_loss"}, "key": "run_start", "value": {}}',
     '{"key": "a", "metadata": {"key": "train_loss"}}', '{"key":"a", "metadata": {"key": "train_loss"}}'],
)  # fmt: skip
def test_a_line_whose_key_is_unclear_or_another_is_of_the_run(line: str) -> None:
    assert is_of_the_run(MARK + line)
