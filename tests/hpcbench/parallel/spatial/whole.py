"""Layers split over ranks against the same layers whole: outputs, and gradients of inputs and parameters."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from hpcbench.parallel.spatial.layers import own_part, split_layers

from .threads import ThreadAxis, on_ranks


def assert_split_is_whole(
    make: Callable[[], nn.Module], sample: tuple[int, ...], ranks: dict[int, int], *, tolerance: float = 1e-11,
    dtype: torch.dtype = torch.float64, layout: torch.memory_format = torch.contiguous_format,
) -> None:  # fmt: skip
    """Outputs, gradients of the input and of the parameters of the split layers are those of the whole ones."""
    torch.manual_seed(0)
    inputs = torch.randn(2, *sample, dtype=dtype)
    whole = make().to(dtype)
    outputs, gradients, along = passed(whole, inputs)

    def work(axes: dict[int, ThreadAxis]) -> tuple[Tensor, list[Tensor], Tensor]:
        model = make().to(dtype)
        model.load_state_dict(whole.state_dict())
        model = nn.Sequential(model)
        split_layers(model, sample, axes)
        return passed(model, own_part(inputs, axes).contiguous(memory_format=layout), axes)

    results = on_ranks(ranks, work)
    places = grid(ranks)
    joined = assembled([result[0] for result in results], places, outputs.shape)
    torch.testing.assert_close(joined, outputs, rtol=tolerance, atol=tolerance)
    joined = assembled([result[2] for result in results], places, inputs.shape)
    torch.testing.assert_close(joined, along, rtol=tolerance, atol=tolerance)
    for number, gradient in enumerate(gradients):
        total = torch.stack([result[1][number] for result in results]).sum(0)
        torch.testing.assert_close(total, gradient, rtol=tolerance, atol=tolerance * max(1, gradient.abs().max()))


def passed(
    model: nn.Module, inputs: Tensor, axes: dict[int, ThreadAxis] | None = None
) -> tuple[Tensor, list[Tensor], Tensor]:
    """Output, gradients of the parameters and of the input for a loss that weighs every output by its place."""
    inputs = inputs.detach().requires_grad_()
    output = model(inputs)
    weights = place_weights(output, axes)
    (output * weights).sum().backward()
    assert inputs.grad is not None
    return output.detach(), [parameter.grad for parameter in model.parameters()], inputs.grad  # type: ignore[misc]


def place_weights(output: Tensor, axes: dict[int, ThreadAxis] | None) -> Tensor:
    """A number for each element, a function of its place in the whole output."""
    shape = list(output.shape)
    starts = dict.fromkeys(range(output.dim()), 0)
    for dim, axis in (axes or {}).items():
        lengths = axis.stacked(torch.tensor([output.shape[dim]]))
        starts[dim] = int(lengths[: axis.rank].sum())
    weights = torch.zeros(shape, dtype=output.dtype)
    for dim, size in enumerate(shape):
        view = [1] * len(shape)
        view[dim] = size
        weights = weights + torch.sin((starts[dim] + torch.arange(size, dtype=output.dtype)) * (1.3 + dim)).view(view)
    return weights


def grid(ranks: dict[int, int]) -> list[dict[int, int]]:
    places: list[dict[int, int]] = [{}]
    for dim, size in ranks.items():
        places = [{**place, dim: index} for place in places for index in range(size)]
    return places


def assembled(parts: list[Tensor], places: list[dict[int, int]], shape: torch.Size) -> Tensor:
    """The parts of all ranks side by side."""
    by_place = {tuple(place.values()): part for place, part in zip(places, parts, strict=True)}
    dims = list(places[0])
    whole = concatenated(by_place, dims, ())
    assert whole.shape == shape
    return whole


def concatenated(parts: dict[tuple[int, ...], Tensor], dims: list[int], place: tuple[int, ...]) -> Tensor:
    if len(place) == len(dims):
        return parts[place]
    count = 1 + max(key[len(place)] for key in parts if key[: len(place)] == place)
    return torch.cat([concatenated(parts, dims, (*place, index)) for index in range(count)], dim=dims[len(place)])
