"""Every number of a configuration has bounds: beyond them is one line that names key, value and bound."""

from __future__ import annotations

import dataclasses
import math
import typing
from collections.abc import Iterator
from typing import Any

import pytest

from hpcbench.application import Application, find_application
from hpcbench.batch.site import Node
from hpcbench.config.bounds import BOUNDS, check_bounds, within
from hpcbench.config.resolve import config_class, resolve
from hpcbench.config.schema import RunConfig
from staging.bounds import Bounds, shown
from staging.errors import InputError

PLAIN = Application(name="plain", title="none", benchmark="plain", package="no_such_package")


class Number(typing.NamedTuple):
    """A field that holds numbers, found by its type."""

    application: str
    key: str
    entries: int
    whole: bool
    optional: bool
    bounds: Bounds

    def text(self, value: object) -> str:
        """``value`` as it is typed for this field, in a list where it is one."""
        return f"[{', '.join([str(value)] * self.entries)}]" if self.entries else str(value)


def kinds_of(hint: Any) -> set[Any]:
    """All types in a hint."""
    inner = [each for each in typing.get_args(hint) if isinstance(each, type) or typing.get_args(each)]
    literal = typing.get_origin(hint) is typing.Literal
    return {hint} if literal or not inner else set().union(*map(kinds_of, inner))


def numbers_of(application: str, kind: type, prefix: str = "") -> Iterator[Number]:
    """Every field of a configuration whose type has numbers."""
    hints = typing.get_type_hints(kind)
    for field in dataclasses.fields(kind):
        hint, key = hints[field.name], f"{prefix}{field.name}"
        if dataclasses.is_dataclass(hint):
            yield from numbers_of(application, typing.cast("type", hint), f"{key}.")
            continue
        kinds = kinds_of(hint)
        if not kinds & {int, float}:
            continue
        entries = 2 if "tuple" in str(hint) else 1 if "list" in str(hint) else 0
        yield Number(application, key, entries, int in kinds, type(None) in kinds, field.metadata.get(BOUNDS))


def all_numbers() -> list[Number]:
    """Of what all runs share, and of what each application adds; each once."""
    shared = list(numbers_of("cosmoflow", RunConfig))
    known = {number.key for number in shared}
    own = [
        number
        for name in ("cosmoflow", "deepcam")
        for number in numbers_of(name, config_class(find_application(name)))
        if number.key not in known
    ]
    return shared + own


NUMBERS = all_numbers()


def test_numbers_are_found_by_their_types() -> None:
    """So that the tests below miss none: alone, optional, in lists and tuples, in groups of the applications."""
    found = {number.key: number for number in NUMBERS}
    assert len(found) > 50
    for key in ("train.seed", "optim.betas", "schedule.milestones", "simulate.redshifts", "data.channels"):
        assert key in found
    assert found["train.seed"].optional
    assert found["optim.betas"].entries == 2
    assert not found["simulate.redshifts"].whole


@pytest.mark.parametrize("number", [*NUMBERS, *numbers_of("site", Node)], ids=lambda number: number.key)
def test_every_number_declares_finite_bounds(number: Number) -> None:
    assert number.bounds is not None, f"{number.key}: declare metadata=within(low, high)"
    assert math.isfinite(number.bounds.low)
    assert math.isfinite(number.bounds.high)
    assert number.bounds.low < number.bounds.high


def refused(number: Number, text: str) -> str:
    with pytest.raises(InputError) as caught:
        resolve(find_application(number.application), None, [], {number.key: text})
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith(number.key)
    return message


def beyond(number: Number, *, above: bool) -> str:
    bounds = number.bounds
    bound = bounds.high if above else bounds.low
    if bounds.open_high if above else bounds.open_low:
        return str(bound)
    if number.whole:
        return str(int(bound) + (1 if above else -1))
    return repr(math.nextafter(bound, math.inf if above else -math.inf))


@pytest.mark.parametrize("number", NUMBERS, ids=lambda number: number.key)
def test_every_number_is_refused_beyond_its_bounds(number: Number) -> None:
    low, high = "above" if number.bounds.open_low else "at least", "below" if number.bounds.open_high else "at most"
    assert f"must be {low} " in refused(number, number.text(beyond(number, above=False)))
    assert f"must be {high} " in refused(number, number.text(beyond(number, above=True)))
    assert "must be" in refused(number, number.text("1" + "0" * 400))


@pytest.mark.parametrize("number", NUMBERS, ids=lambda number: number.key)
def test_every_number_is_refused_where_it_is_none(number: Number) -> None:
    for text in (".nan", ".inf", "-.inf", "nan", "inf", "1e999"):
        wanted = "must be a whole number" if number.whole else "must be a finite number"
        assert wanted in refused(number, number.text(text))
    for text in ("true", "many", "[[1]]", "{a: 1}", "2026-13-45", "", "0x_", "&a 1", "!!int 1"):
        if number.entries == 1 and not text:
            continue  # an empty list is one
        assert "must be a" in refused(number, number.text(text))


@pytest.mark.parametrize("number", NUMBERS, ids=lambda number: number.key)
def test_null_is_for_what_is_optional(number: Number) -> None:
    if number.optional:
        config = resolve(find_application(number.application), None, [], {number.key: "null"})
        group, name = number.key.split(".")
        assert getattr(getattr(config, group), name) is None
    else:
        assert "(null) must be a" in refused(number, "null")
        assert "(null) must be a" in refused(number, typing.cast("str", None))
    if number.entries:
        assert f"{number.key}[0] (null) must be a" in refused(number, number.text("null"))


@pytest.mark.parametrize("name", ["cosmoflow", "deepcam"])
def test_the_bounds_themselves_are_taken(name: str) -> None:
    """Each lowest and highest value passes; that other settings do not go with it is said of more than one key."""
    for number in numbers_of(name, config_class(find_application(name))):
        for bound, is_open in (
            (number.bounds.low, number.bounds.open_low),
            (number.bounds.high, number.bounds.open_high),
        ):
            config = config_class(find_application(name))()
            group, attribute = number.key.split(".")
            value = [int(bound) if number.whole else float(bound)] * number.entries if number.entries else bound
            setattr(getattr(config, group), attribute, value)
            if is_open:
                with pytest.raises(InputError, match=attribute):
                    check_bounds(config)
            else:
                check_bounds(config)


@dataclasses.dataclass
class Loose(RunConfig):
    """A user's own configuration that declares nothing."""

    model: dict[str, float] = dataclasses.field(default_factory=dict)


@pytest.mark.parametrize(
    ("model", "line"),
    [
        ({"width": math.nan}, "model[width] (nan) must be a finite number"),
        ({"width": 2**63}, "model[width] (9223372036854775808) must be at most 9223372036854775807"),
        ({"widths": [1, (2, -math.inf)]}, "model[widths][1][1] (-inf) must be a finite number"),
    ],
)
def test_undeclared_numbers_are_finite_and_fit_in_64_bits(model: Any, line: str) -> None:
    with pytest.raises(InputError) as caught:
        check_bounds(Loose(model=model))
    assert str(caught.value) == line


def test_the_line_says_what_to_choose() -> None:
    @dataclasses.dataclass
    class Sample:
        size: int = dataclasses.field(default=1, metadata=within(1, 8))
        share: float = dataclasses.field(default=0.5, metadata=within(0, 1, open_low=True, why="it is a share"))

    check_bounds(Sample(8, 1.0))
    for sample, line in (
        (Sample(9), "size (9) must be at most 8; choose from 1 to 8"),
        (Sample(1, 0.0), "share (0.0) must be above 0; choose above 0 and at most 1"),
        (Sample(1, 1.5), "share (1.5) must be at most 1, since it is a share; choose above 0 and at most 1"),
    ):
        with pytest.raises(InputError) as caught:
            check_bounds(sample)
        assert str(caught.value) == line


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"), (True, "true"), ([1, [2.5, "x"]], "[1, [2.5, x]]"), ({"a": None}, "{a: null}"),
        (10**100, "a number of more than 60 digits"), ("a\nb", "a b"), ("x" * 1000, "x" * 60 + "..."),
    ],
)  # fmt: skip
def test_values_are_shown_in_a_short_line(value: object, text: str) -> None:
    assert shown(value) == text


def test_the_largest_seed_goes_into_every_generator() -> None:
    """As the loop, the sampler and the staging use it, at the bounds of epochs and ranks."""
    import numpy as np
    import torch

    from hpcbench.config.schema import LARGEST_SEED, MOST_EPOCHS, MOST_RANKS
    from hpcbench.data.sampler import epoch_order
    from hpcbench.train.randomness import sample_keys
    from staging.planning.balance import least_loaded

    torch.manual_seed(LARGEST_SEED * 1_000_003 + MOST_EPOCHS * 1009 + MOST_RANKS)
    assert sorted(epoch_order(8, LARGEST_SEED, MOST_EPOCHS).tolist()) == list(range(8))
    assert sample_keys(LARGEST_SEED, MOST_EPOCHS, torch.arange(3)).unique().numel() == 3
    assert len(least_loaded(np.arange(4), 2, LARGEST_SEED)) == 4
