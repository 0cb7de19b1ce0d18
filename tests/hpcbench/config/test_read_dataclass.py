"""Dataclasses of the values of files: people's YAML is converted, JSON must have the types already."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcbench.config.bounds import within
from hpcbench.config.read_dataclass import from_json, from_values
from staging.errors import InputError


@dataclass(frozen=True)
class Disk:
    path: str
    gb: float | None = field(default=None, metadata=within(0, 1e6))


@dataclass(frozen=True)
class Machine:
    name: str
    nodes: int = 1
    whole: bool = False
    kind: Literal["cpu", "gpu"] = "cpu"
    main: Disk | None = None
    disks: tuple[Disk, ...] = ()
    marks: list[float] = field(default_factory=list)
    notes: Mapping[str, str] = field(default_factory=dict)


TEXTS = st.text("abc", min_size=1, max_size=3)
DISKS = st.builds(Disk, TEXTS, st.none() | st.floats(0, 1e6))
MACHINES = st.builds(
    Machine, TEXTS, st.integers(-(2**63) + 1, 2**63 - 1), st.booleans(), st.sampled_from(["cpu", "gpu"]),
    st.none() | DISKS, st.lists(DISKS, max_size=2).map(tuple),
    st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=2), st.dictionaries(TEXTS, TEXTS, max_size=2),
)  # fmt: skip


@given(MACHINES)
def test_json_comes_back(machine: Machine) -> None:
    assert from_json(Machine, asdict(machine), "") == machine


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([], "f must hold keys and values"),
        ({}, "f: lacks 'name'; add it"),
        ({"nodes": 1}, "f: lacks 'name'; add it"),
        ({"name": 3}, r"f: name \(3\) must be a text"),
        ({"name": "a", "nodes": True}, r"f: nodes \(true\) must be a whole number"),
        ({"name": "a", "nodes": 2.0}, r"f: nodes \(2.0\) must be a whole number"),
        ({"name": "a", "nodes": 2**63}, r"f: nodes \(9223372036854775808\) must be at most"),
        ({"name": "a", "whole": 1}, r"f: whole \(1\) must be true or false"),
        ({"name": "a", "kind": []}, r"f: kind \(\[\]\) must be one of cpu, gpu"),
        ({"name": "a", "main": 5}, "f: main must hold keys and values, not 5"),
        ({"name": "a", "main": {}}, "f: main lacks 'path'; add it"),
        ({"name": "a", "disks": {}}, r"f: disks .* must be a list of groups of keys"),
        ({"name": "a", "disks": [{"path": "b", "gb": -1}]}, r"f: disks\[0\].gb \(-1\) must be at least 0"),
        ({"name": "a", "marks": ["b"]}, r"f: marks\[0\] \(b\) must be a number"),
        ({"name": "a", "marks": [float("inf")]}, r"f: marks\[0\] \(inf\) must be a number"),
        ({"name": "a", "notes": {"b": 1}}, r"f: notes.b \(1\) must be a text"),
        ({"name": "a", "note": {}}, "f: unknown key 'note'; did you mean 'notes'"),
    ],
)
def test_what_is_wrong_in_json_is_one_line(values: Any, said: str) -> None:
    with pytest.raises(InputError, match=f"^{said}") as caught:
        from_json(Machine, values, "f: ")
    assert "\n" not in str(caught.value)


def test_keys_of_another_version_are_left_out_where_that_is_asked_for() -> None:
    values = {"name": "a", "later": 1, "disks": [{"path": "b", "later": 2}]}
    assert from_json(Machine, values, "", ignore_unknown=True) == Machine("a", disks=(Disk("b"),))


def test_what_people_write_is_converted() -> None:
    values = {"name": "a", "nodes": "3", "disks": [{"path": "b", "gb": "1e3"}], "main": None}
    assert from_values(Machine, values, "") == Machine("a", nodes=3, disks=(Disk("b", 1000.0),))
    with pytest.raises(InputError, match=r"^nodes \(many\) must be a whole number"):
        from_values(Machine, {"name": "a", "nodes": "many"}, "")
