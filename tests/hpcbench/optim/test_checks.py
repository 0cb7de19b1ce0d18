"""Options, parameters and states that the optimizers with trust ratios refuse, and what they take."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from hpcbench.config.optimizers import OPTIMIZERS, options_of
from hpcbench.config.schema import OptimConfig
from hpcbench.optim.clip import clip_gradients
from hpcbench.optim.layerwise import LayerwiseOptimizer
from hpcbench.optim.registry import builder_of, create_optimizer, load_optimizer_state
from hpcbench.optim.tensors import is_dense
from staging.errors import InputError
from tests.hpcbench.optim.test_layerwise import LAYERWISE, parameters, run, tensors

NAN, INFINITE = math.nan, math.inf
NUMBERS = (NAN, INFINITE, -INFINITE, -0.1, "0.1", None)
FRACTIONS = (*NUMBERS, 1.0)
PAIRS = (0.9, (0.9,), *((0.9, each) for each in FRACTIONS), *((each, 0.9) for each in FRACTIONS))
BOUNDS = ((2.0, 1.0), (NAN, 1.0), (0.0, NAN), (-0.1, 1.0), (INFINITE, INFINITE), 1.0, (0.0, "1"))
BAD: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("eps", "weight_decay", "trust_coefficient", "max_grad_norm"), NUMBERS),
    "lr": (*NUMBERS, *(torch.tensor(each) for each in (NAN, INFINITE, -0.1)), torch.ones(2)),
    "momentum": FRACTIONS,
    "betas": PAIRS,
    "trust_bounds": BOUNDS,
    **dict.fromkeys(
        ("adapt", "always_adapt", "bias_correction", "clip_rate", "grad_averaging", "nesterov"), (NAN, "no", None)
    ),
}


def weight(size: int = 3) -> nn.Parameter:
    made = nn.Parameter(torch.ones(size))
    made.grad = torch.ones(size)
    return made


def build(name: str, groups: Any, **changes: Any) -> LayerwiseOptimizer:
    """The optimizer's class as one who calls it from Python does."""
    options = {key: value for key, value in options_of(OptimConfig(name=name)).items() if not key.endswith("_exclude")}
    made = builder_of(OPTIMIZERS[name])(groups, **{"lr": 0.1, **options, **changes})
    assert isinstance(made, LayerwiseOptimizer)
    return made


def message(call: Callable[[], object]) -> str:
    with pytest.raises(InputError) as caught:
        call()
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("name", LAYERWISE)
def test_options_out_of_range_are_refused_wherever_they_are_given(name: str) -> None:
    options = build(name, [weight()]).param_groups[0].keys() & BAD.keys()
    assert len(options) >= 9
    for option, value in ((key, value) for key in options for value in BAD[key]):
        if option != "adapt":  # which only a group has
            found = message(lambda: build(name, [weight()], **{option: value}))  # noqa: B023 - called at once
            assert found.split(": ")[1].startswith(f"{option} ("), found
        found = message(lambda: build(name, [{"params": [weight()]}, {"params": [weight()], option: value}]))  # noqa: B023
        assert f": {option} (" in found
        assert " of group 1 must be " in found
        optimizer = build(name, [weight()])
        found = message(lambda: optimizer.add_param_group({"params": [weight()], option: value}))  # noqa: B023
        assert " of group 1 must be " in found
        assert len(optimizer.param_groups) == 1
        optimizer.param_groups[0][option] = value
        assert " of group 0 must be " in message(optimizer.step)
        assert optimizer.param_groups[0]["params"][0].tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("lars", {"momentum": 1.0}, "LARS: momentum (1.0) must be a number of at least 0 and below 1"),
        ("lamb", {"betas": (0.9, NAN)}, "LAMB: betas ([0.9, nan]) must be two numbers of at least 0 and below 1"),
        ("lamb", {"eps": NAN}, "LAMB: eps (nan) must be a finite number of at least 0"),
        ("larc", {"lr": INFINITE}, "LARC: lr (inf) must be a finite number of at least 0"),
        (
            "nvlamb", {"trust_bounds": (2.0, 1.0)},
            "NVLAMB: trust_bounds ([2.0, 1.0]) must be a finite number of at least 0 and one that is not smaller",
        ),
        ("lars", {"nesterov": "no"}, "LARS: nesterov (no) must be true or false"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_an_option_is_said_in_one_line(name: str, options: dict[str, Any], expected: str) -> None:
    assert message(lambda: build(name, [weight()], **options)) == expected


@pytest.mark.parametrize("name", LAYERWISE)
def test_the_ends_of_the_ranges_are_taken(name: str) -> None:
    ends: dict[str, Any] = dict.fromkeys(("eps", "weight_decay", "trust_coefficient", "max_grad_norm", "momentum"), 0)
    ends |= {"lr": 0.0, "betas": (0.0, 0.0), "trust_bounds": (0.0, INFINITE)}
    known = build(name, [weight()]).defaults
    optimizer = build(name, [weight()], **{key: value for key, value in ends.items() if key in known})
    optimizer.step()
    assert optimizer.param_groups[0]["params"][0].tolist() == [1, 1, 1]


@pytest.mark.parametrize("largest", [NAN, 0.0, -1.0])
def test_clipping_to_no_norm_is_refused(largest: float) -> None:
    expected = f"clipping: the largest norm ({largest}) must be above 0"
    assert message(lambda: clip_gradients([weight()], largest)) == expected


def test_an_infinite_largest_norm_leaves_gradients_whose_norm_overflows() -> None:
    parameter = weight()
    parameter.grad = torch.tensor([1e30, 1.0, 1.0])
    assert float(clip_gradients([parameter], INFINITE)) == INFINITE
    assert torch.equal(parameter.grad, torch.tensor([1e30, 1.0, 1.0]))


GAPS: dict[str, Callable[[], Tensor]] = {
    "every second column": lambda: torch.ones(4, 6)[:, ::2],
    "columns of a larger matrix": lambda: torch.ones(4, 6)[:, :3],
    "one row for all": lambda: torch.ones(3).expand(4, 3),
    "a number for all": lambda: torch.ones(()).expand(4, 3),
    "overlapping windows": lambda: torch.ones(9).unfold(0, 3, 1),
}


@pytest.mark.parametrize("name", LAYERWISE)
@pytest.mark.parametrize("kind", GAPS)
def test_parameters_with_gaps_or_overlaps_are_refused(name: str, kind: str) -> None:
    view = nn.Parameter(GAPS[kind]())
    expected = (
        f"{name.upper()} takes parameters whose elements fill their memory, not a view of "
        f"shape {tuple(view.shape)} and strides {view.stride()}; pass its contiguous()"
    )
    assert message(lambda: build(name, [weight(), view])) == expected
    optimizer = build(name, [weight()])
    assert message(lambda: optimizer.add_param_group({"params": [view]})) == expected
    assert len(optimizer.param_groups) == 1
    # Weights that get such memory later.
    other = nn.Parameter(torch.ones(view.shape))
    optimizer.add_param_group({"params": [other]})
    for number in range(2):
        other.grad = torch.ones(view.shape)
        if number:
            other.data = GAPS[kind]()
            assert message(optimizer.step) == expected
        else:
            optimizer.step()


@pytest.mark.parametrize("name", LAYERWISE)
def test_sparse_parameters_are_refused(name: str) -> None:
    found = message(lambda: build(name, [nn.Parameter(torch.eye(3).to_sparse())]))
    assert "takes dense parameters, not a sparse one of shape (3, 3)" in found


@pytest.mark.parametrize("name", LAYERWISE)
def test_any_order_of_dimensions_in_memory_takes_the_same_steps(name: str) -> None:
    """Also one that changes between steps, as where a model is turned to channels last."""
    start = tensors(3, ((4, 3, 5, 5),))[0]

    def train(before: Callable[[Tensor], Tensor], after: Callable[[Tensor], Tensor]) -> Tensor:
        layer = nn.Parameter(before(start.clone()))
        optimizer = create_optimizer(OptimConfig(name=name, lr=0.1, weight_decay=0.1), [{"params": [layer]}], "cpu")
        for number in range(6):
            if number == 3:
                layer.data = after(layer.data)
            layer.grad = tensors(50 + number, ((4, 3, 5, 5),))[0]
            optimizer.step()
        return layer.detach()

    def channels_last(tensor: Tensor) -> Tensor:
        return tensor.contiguous(memory_format=torch.channels_last)

    def turned(tensor: Tensor) -> Tensor:
        return tensor.permute(3, 1, 0, 2).contiguous().permute(2, 1, 3, 0)

    plain = train(torch.Tensor.contiguous, torch.Tensor.contiguous)
    layouts: list[Callable[[Tensor], Tensor]] = [channels_last, turned, torch.Tensor.contiguous]
    for pair in itertools.permutations(layouts, 2):
        torch.testing.assert_close(train(*pair), plain, rtol=1e-12, atol=1e-14)


@given(st.data())
def test_dense_is_what_fills_a_piece_of_memory_once(data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.integers(0, 3), max_size=4))
    strides = data.draw(st.lists(st.integers(0, 9), min_size=len(shape), max_size=len(shape)))
    places = [sum(map(int.__mul__, index, strides)) for index in itertools.product(*map(range, shape))]
    assert is_dense(torch.zeros(100).as_strided(shape, strides)) == (sorted(places) == list(range(len(places))))


@pytest.mark.parametrize("kind", ["every second column", "columns of a larger matrix"])
def test_the_norm_of_gradients_with_gaps_counts_each_element_once(kind: str) -> None:
    parameter = nn.Parameter(GAPS[kind]())
    parameter.grad = GAPS[kind]()
    assert float(clip_gradients([parameter], INFINITE)) == pytest.approx(math.sqrt(parameter.numel()), rel=1e-6)


def trained(name: str, steps: int = 3) -> tuple[torch.optim.Optimizer, list[nn.Parameter]]:
    weights = parameters(tensors())
    optimizer = create_optimizer(OptimConfig(name=name, lr=0.05, weight_decay=0.01), [{"params": weights}], "cpu")
    run(optimizer, weights, steps)
    return optimizer, weights


def refused(name: str, state: dict[str, Any]) -> str:
    """What a trained optimizer says to a state, after which it takes the steps that one takes that saw none."""
    optimizer, weights = trained(name)
    found = message(lambda: optimizer.load_state_dict(state))
    assert message(lambda: load_optimizer_state(optimizer, state)) == found
    untouched, others = trained(name)
    run(optimizer, weights)
    run(untouched, others)
    assert all(torch.equal(one, other) for one, other in zip(weights, others, strict=True))
    return found


@pytest.mark.parametrize("name", LAYERWISE)
@pytest.mark.parametrize("other", sorted(OPTIMIZERS))
def test_the_state_of_another_optimizer_is_refused(name: str, other: str) -> None:
    state = trained(other)[0].state_dict()
    kind = name.upper()
    if name == other:
        trained(name)[0].load_state_dict(state)
        return
    found = refused(name, state)
    if builder_of(OPTIMIZERS[name]) is builder_of(OPTIMIZERS[other]):
        assert found.startswith(f"{kind}: group 0 of the loaded state is of {other.upper()} (")
        return
    assert found.startswith(f"{kind}: group 0 of the loaded state lacks ")
    assert found.endswith(f"; load the state of a {kind} over the same parameters")


Damage = Callable[[dict[str, Any], str], None]
DAMAGES: dict[str, tuple[Damage, str]] = {
    "no groups": (
        lambda state, key: state.pop("param_groups"),
        "the loaded state lacks param_groups; load what state_dict() returned",
    ),
    "another number of parameters": (
        lambda state, key: state["param_groups"][0]["params"].pop(),
        "the loaded state has groups of [3] parameters, this optimizer of [4]; make both with the same groups",
    ),
    "another number of groups": (
        lambda state, key: state["param_groups"].append({"params": []}),
        "the loaded state has groups of [4, 0] parameters, this optimizer of [4]",
    ),
    "an option is missing": (
        lambda state, key: state["param_groups"][0].pop("trust_bounds"),
        "group 0 of the loaded state lacks trust_bounds",
    ),
    "the rate is missing": (
        lambda state, key: state["param_groups"][0].pop("lr"), "group 0 of the loaded state lacks lr",
    ),
    "an option is out of range": (
        lambda state, key: state["param_groups"][0].update(weight_decay=NAN),
        "weight_decay (nan) of group 0 must be a finite number of at least 0",
    ),
    "a tensor has another name": (
        lambda state, key: state["state"][1].update(other=state["state"][1].pop(key)),
        "the loaded state of parameter 1 of group 0 has ",
    ),
    "a tensor too many": (
        lambda state, key: state["state"][1].update(max_exp_avg_sq=torch.ones(5)),
        "the loaded state of parameter 1 of group 0 has ",
    ),
    "a wrong shape": (
        lambda state, key: state["state"][1].update({key: torch.ones(6)}),
        "the loaded state of parameter 1 of group 0: KEY has shape (6,), the parameter (5,)",
    ),
    "no tensor": (
        lambda state, key: state["state"][1].update({key: None}),
        "the loaded state of parameter 1 of group 0: KEY must be a real dense tensor",
    ),
    "of another parameter": (
        lambda state, key: state["state"].update({7: {}}), "the loaded state is also of [7], no parameter of a group",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LAYERWISE)
@pytest.mark.parametrize("kind", DAMAGES)
def test_a_damaged_state_is_refused(name: str, kind: str) -> None:
    state = copy.deepcopy(trained(name)[0].state_dict())
    key = next(key for key in state["state"][0] if key != "step")
    damage, expected = DAMAGES[kind]
    damage(state, key)
    assert expected.replace("KEY", key) in refused(name, state)


@pytest.mark.parametrize("name", ["lamb", "nvlamb"])
@pytest.mark.parametrize("step", [NAN, INFINITE, -1.0, None, torch.tensor(NAN), torch.ones(2)])
def test_a_count_of_steps_that_is_none_is_refused(name: str, step: Any) -> None:
    state = copy.deepcopy(trained(name)[0].state_dict())
    state["state"][2]["step"] = step
    expected = f"{name.upper()}: the loaded state of parameter 2 of group 0: step ("
    assert refused(name, state).startswith(expected)


@pytest.mark.parametrize("name", LAYERWISE)
def test_parameters_that_never_had_a_gradient_have_no_state_and_are_taken(name: str) -> None:
    weights = parameters(tensors())
    optimizer = create_optimizer(OptimConfig(name=name), [{"params": weights}], "cpu")
    weights[0].grad = torch.ones_like(weights[0])
    optimizer.step()
    state = optimizer.state_dict()
    assert set(state["state"]) == {0}
    other, others = trained(name, steps=1)
    other.load_state_dict(state)
    run(other, others, 1)
    assert all(parameter.isfinite().all() for parameter in others)
