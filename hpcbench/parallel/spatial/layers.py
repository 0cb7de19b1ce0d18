"""Replaces the layers of a model with forms whose samples are split over ranks; the model's own code stays as it is.

``split_layers`` runs the model once on shapes alone to learn the size of every layer's whole input. A layer without a
split form stops it with an error that names the layer; ``forms`` adds one.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd
from torch.nn.modules.pooling import _AdaptiveAvgPoolNd, _AvgPoolNd, _MaxPoolNd

from hpcbench.parallel.spatial.convolution import Axes, SplitConvolution
from hpcbench.parallel.spatial.extents import cut
from hpcbench.parallel.spatial.pooling import SplitGlobalMean, SplitPool
from hpcbench.parallel.spatial.refused_calls import RefusedCalls
from hpcbench.parallel.spatial.resize import SplitUpsample
from staging.errors import InputError

Form = Callable[[Any, Sequence[int], Axes], nn.Module]
"""Makes the split form of a layer from the layer, the sizes of its whole input, and the axes."""

ELEMENTWISE = (
    nn.Identity, nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.PReLU, nn.ELU, nn.SELU, nn.CELU, nn.GELU, nn.SiLU, nn.Mish,
    nn.Hardswish, nn.Hardsigmoid, nn.Hardtanh, nn.Sigmoid, nn.Tanh, nn.Softplus,
)  # fmt: skip
"""Layers that work on one element at a time and stay as they are."""


def global_mean(layer: _AdaptiveAvgPoolNd, sizes: Sequence[int], axes: Axes) -> nn.Module:
    """The split form of an adaptive pooling to one place."""
    wanted = layer.output_size if isinstance(layer.output_size, tuple) else (layer.output_size,)
    if any(size != 1 for size in wanted):
        raise InputError(f"a split adaptive pooling gives one place, not {layer.output_size}")
    return SplitGlobalMean(sizes, axes)


FORMS: dict[type[nn.Module], Form] = {
    _ConvNd: SplitConvolution,
    _MaxPoolNd: SplitPool,
    _AvgPoolNd: SplitPool,
    _AdaptiveAvgPoolNd: global_mean,
    nn.Upsample: SplitUpsample,
}
"""Split forms by type of layer; the first type that a layer is an instance of counts."""


def split_layers(
    model: nn.Module,
    sample: Sequence[int],
    axes: Axes,
    *,
    whole: Collection[str] = (),
    normalize: Form | None = None,
    forms: dict[type[nn.Module], Form] | None = None,
    unchanged: tuple[type[nn.Module], ...] = (),
) -> None:
    """Replace the layers of ``model`` in place; parameters and their names stay.

    ``sample`` is the shape (channels, ...) of a whole sample. Modules named in ``whole`` and those within them work on
    whole samples and stay, as do modules of the types in ``unchanged``, which work on one element at a time. ``forms``
    adds to ``FORMS``; ``normalize`` makes the form of a batch norm. Raises ``InputError`` for a layer without a form,
    for one whose input, or whose output, is smaller than the number of ranks, for samples with fewer dimensions than
    are split, and for a module that convolves, pools or resizes them in its own code.
    """
    if len(sample) - 1 < (most := max(axes, default=2) - 1):
        raise InputError(
            f"dimension {most} of samples is to be split, and they have {len(sample) - 1}; name at most "
            f"{len(sample) - 1} axes in parallel.spatial"
        )
    known = {**(forms or {}), **FORMS}
    sizes = input_sizes(model, sample, whole, (*known, *unchanged))
    first_name = {layer: name for name, layer in model.named_modules()}
    made: dict[nn.Module, nn.Module] = {}
    for name, layer in list(model.named_modules(remove_duplicate=False)):
        if is_within(name, whole):
            continue
        if layer in made:  # a layer that the model has under several names
            model.set_submodule(name, made[layer])
            continue
        container = list(layer.children()) or isinstance(layer, nn.Sequential | nn.ModuleList | nn.ModuleDict)
        if isinstance(layer, (*ELEMENTWISE, *unchanged)) or (container and type(layer) not in known):
            continue
        form = normalize if isinstance(layer, _BatchNorm) else form_of(layer, known)
        if form is None:
            raise InputError(
                f"layer {name} ({type(layer).__name__}) has no form for samples that are split over ranks; "
                "set parallel.spatial 1, or give split_layers one in `forms`"
            )
        if first_name[layer] not in sizes:
            raise InputError(f"layer {name} ({type(layer).__name__}) takes no part in a forward pass; remove it")
        before, after = sizes[first_name[layer]]
        check_sizes(name, before, before if form is global_mean else after, axes)
        try:
            made[layer] = form(layer, before, axes)
        except InputError as error:
            raise InputError(f"layer {name}: {error}") from None
        model.set_submodule(name, made[layer])


def form_of(layer: nn.Module, forms: dict[type[nn.Module], Form]) -> Form | None:
    """The form of a layer, if there is one."""
    return next((form for kind, form in forms.items() if isinstance(layer, kind)), None)


def check_sizes(name: str, before: Sequence[int], after: Sequence[int], axes: Axes) -> None:
    """Raise ``InputError`` for a dimension that is smaller than the number of ranks."""
    for dim, axis in axes.items():
        for what, sizes in (("input", before), ("output", after)):
            size = sizes[dim - 2] if len(sizes) > dim - 2 else 1
            if size < axis.size:
                raise InputError(
                    f"layer {name} has an {what} of size {size} in dimension {dim - 1} of a sample, fewer than the "
                    f"{axis.size} ranks that it is split over; split over at most {size}"
                )


def is_within(name: str, modules: Collection[str]) -> bool:
    """Whether a module is one of ``modules``, or within one of them."""
    return any(name == module or name.startswith(f"{module}.") for module in modules)


def input_sizes(
    model: nn.Module,
    sample: Sequence[int],
    whole: Collection[str] = (),
    known: tuple[type[nn.Module], ...] = tuple(FORMS),
) -> dict[str, tuple[tuple[int, ...], tuple[int, ...]]]:
    """Sizes of the input and output of every layer, without batch and channels, for a sample of this shape.

    Raises ``InputError`` for a layer that gets inputs of several sizes, for a factor that leaves nothing of a sample,
    and for a module that convolves, pools or resizes samples in its own code and is neither in ``whole`` nor of the
    types in ``known``.
    """
    trial = copy.deepcopy(model).to("meta").eval()
    sizes_by_layer: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {}

    def note(name: str) -> Callable[[nn.Module, Any, Any], None]:
        def hook(module: nn.Module, inputs: Any, output: Any) -> None:
            if not inputs or not isinstance(inputs[0], Tensor) or not isinstance(output, Tensor):
                return
            sizes = tuple(inputs[0].shape[2:]), tuple(output.shape[2:])
            if sizes_by_layer.setdefault(name, sizes) != sizes:
                raise InputError(
                    f"layer {name} meets inputs of {sizes_by_layer[name][0]} and of {sizes[0]}; give each its own"
                )

        return hook

    for name, layer in trial.named_modules():
        layer.register_forward_hook(note(name))
    parameter = next(trial.parameters(), None)

    def may_call(name: str, layer: nn.Module) -> bool:
        # Layers of torch that have no form are refused later, by their type.
        of_torch = type(layer).__module__.startswith("torch.nn.") and not list(layer.children())
        return of_torch or isinstance(layer, known) or is_within(name, whole)

    x = torch.empty(1, *sample, device="meta", dtype=None if parameter is None else parameter.dtype)
    try:
        with torch.no_grad(), RefusedCalls(trial, may_call):
            trial(x)
    except ZeroDivisionError as error:  # of torch, where it scales by a size of 0
        raise InputError(
            f"samples of {' x '.join(map(str, sample[1:]))} leave nothing after a layer of the model resized them; "
            "take larger samples or a larger factor"
        ) from error
    return sizes_by_layer


def own_part(x: Tensor, axes: Axes) -> Tensor:
    """This rank's part of whole samples (batch, channels, ...)."""
    for dim, axis in axes.items():
        span = cut(x.shape[dim], axis.size)[axis.rank]
        x = x.narrow(dim, span.start, span.length)
    return x
