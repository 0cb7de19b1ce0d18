"""What only people know about a system: the file to fill in."""

from __future__ import annotations

import pytest
import yaml

from hpcbench.submission.system_facts import quoted


@pytest.mark.parametrize(
    "text", ["", 'a "quoted" \\ text', "two\nlines", "a\ttab\x85and\u2028breaks\x7f", "500 W, 4 °C"]
)
def test_a_value_is_one_line_that_yaml_reads_back(text: str) -> None:
    """Line breaks would end the comment or the key that the value stands in."""
    assert quoted(text).splitlines() == [quoted(text)]
    assert yaml.safe_load(f"key: {quoted(text)}") == {"key": text}
