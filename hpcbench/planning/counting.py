"""What one rank of a mesh keeps and sends in a training pass, counted on tensors that have shapes but no data.

The model is the application's own, split by its own ``parallelize``. Its messages go to axes that add up their bytes.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from hpcbench.application import Application
from hpcbench.config.schema import RunConfig
from hpcbench.parallel.batchnorm_group import replace_batch_norm
from hpcbench.parallel.mesh import FIRST_DIM, Mesh
from hpcbench.parallel.mesh_shape import MeshShape
from hpcbench.parallel.peers import Message, Peers
from hpcbench.parallel.spatial.layers import own_part
from hpcbench.planning.accelerator_modes import ConvolutionLayout, Pooling
from hpcbench.planning.heap import KEPT_BYTES, Event
from hpcbench.planning.processor_memory import kernels, workspace
from hpcbench.planning.sample_shapes import shapes_of_sample
from hpcbench.train.dropout import set_sample_keys
from staging.errors import InputError

LAYOUTS = {4: torch.channels_last, 5: torch.channels_last_3d}
AUTOCAST = {"bf16-mixed": torch.bfloat16, "16-mixed": torch.float16}


@dataclass
class Traffic:
    """Bytes that one rank sends to others, as messages and into sums, in one pass."""

    forward: int = 0
    backward: int = 0
    sums: int = 0
    """Bytes of sums and statistics over the ranks of a group (global means, batch norms), in both directions."""
    going_back: bool = False
    messages: int = 0
    """Number of messages, each of them to one other rank."""
    summed: int = 0
    """How often something was put into a sum, statistics included."""

    def message(self, size: int) -> None:
        """Add ``size`` bytes to those of the current direction."""
        self.messages += 1
        if self.going_back:
            self.backward += size
        else:
            self.forward += size

    def add_sum(self, size: int) -> None:
        """Add ``size`` bytes that go into a sum."""
        self.summed += 1
        self.sums += size


class CountingPeers:
    """A rank's place among its peers, with the interface of ``hpcbench.parallel.peers.Peers``; no other rank exists."""

    def __init__(self, rank: int, size: int, traffic: Traffic) -> None:
        self.rank, self.size, self.traffic = rank, size, traffic

    def start(self, sends: Sequence[Message], receives: Sequence[Message]) -> Callable[[], None]:
        """See ``Peers``; a receive buffer keeps what it held."""
        for _, part in sends:
            self.traffic.message(part.nbytes)
        return lambda: None

    def all_reduce(self, tensor: Tensor) -> Tensor:
        """See ``Peers``."""
        self.traffic.add_sum(tensor.nbytes)
        return tensor

    def stacked(self, local: Tensor) -> Tensor:
        """See ``Peers``."""
        self.traffic.add_sum(local.nbytes)
        return local.new_empty((self.size, *local.shape))


@dataclass(frozen=True)
class PassCount:
    """Bytes of one rank in one forward and backward pass over a local batch."""

    parameters: int
    activations: int
    """What autograd saves from the forward pass for the backward pass, without parameters and the input."""
    peak: int
    """The most that the pass holds at a time besides parameters, their gradients and the input: saved activations,
    gradients of activations, and intermediate results; on a processor, also the workspace of convolutions."""
    together: int
    """The most that the pass holds at a time, with the gradients of parameters that it has computed by then."""
    events: list[Event]
    """On a processor, what became of each tensor."""
    input: int
    """Inputs and targets of the local batch as model and loss take them; whole inputs where no part can be read."""
    traffic: Traffic


def count_pass(
    application: Application, config: RunConfig, shape: MeshShape, place: tuple[int, ...], batch: int,
    watching: AbstractContextManager[object] | None = None,
) -> PassCount:  # fmt: skip
    """Count one pass of ``batch`` samples on the rank at ``place`` of a group that shares them.

    ``watching``, such as a mode that sees the operations, is entered around forward pass, loss and backward pass.
    Raises ``InputError`` where the model cannot be split in this way.
    """
    traffic = Traffic()
    model = build(application, config)
    axes = split(application, config, model, shape, place, traffic)
    # Autocast does not apply to tensors on the meta device; those of this mode report the CPU as their device.
    with FakeTensorMode(allow_non_fake_inputs=True), ConvolutionLayout(), Pooling():
        model = model.to_empty(device="cpu")
        task = application.module("task").build_task(config)
        inputs, targets = (
            torch.empty(tensor.shape, dtype=tensor.dtype) for tensor in shapes(application, config, batch)
        )
        if config.train.channels_last and inputs.dim() in LAYOUTS:
            inputs = inputs.contiguous(memory_format=LAYOUTS[inputs.dim()])
        part = own_part(inputs, axes)
        if task.reads_parts(True) and config.data.loader == "torch":
            part = inputs = part.clone()
        set_sample_keys(model, torch.empty(batch, dtype=torch.int64))
        saved = SavedActivations([*model.parameters(), *model.buffers(), inputs, targets])
        with Living(model, processor=on_processor(config)) as living, watching or nullcontext():
            with torch.autograd.graph.saved_tensors_hooks(saved.note, lambda tensor: tensor):
                with autocast(config):
                    output: Tensor = task.forward(model, part, targets)
                loss = task.loss(output.to(run_dtype(config)), targets)
            activations = saved.release()
            traffic.going_back = True
            loss.backward()
        parameters = sum(parameter.nbytes for parameter in model.parameters())
    return PassCount(
        parameters, activations, living.peak, living.together, living.events, inputs.nbytes + targets.nbytes, traffic
    )


class SavedActivations:
    """The tensors that autograd saves, each storage counted once; those of ``others`` do not count."""

    def __init__(self, others: Sequence[Tensor]) -> None:
        self._others = {storage_key(tensor) for tensor in others}
        self._found: dict[int, Tensor] = {}

    def note(self, tensor: Tensor) -> Tensor:
        """Record a tensor that autograd saves, and return it."""
        key = storage_key(tensor)
        if key not in self._others:
            # Hold it, so that no other storage can get the same key.
            self._found.setdefault(key, tensor.detach())
        return tensor

    def release(self) -> int:
        """Return the size of the saved tensors in bytes, and hold them no longer."""
        size = sum(tensor.untyped_storage().nbytes() for tensor in self._found.values())
        self._found.clear()
        return size


class Living(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """The bytes of the live tensors that were created while this mode is on.

    ``peak`` excludes the gradients of parameters, ``together`` includes them. On a ``processor`` both include the
    workspace of convolutions, and ``events`` records what became of each tensor.
    """

    def __init__(self, model: nn.Module, *, processor: bool = False) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.now = self.peak = self.together = 0
        self.events: list[Event] = []
        self._processor = processor
        self._gradients = self._count = 0
        self._kernels: set[Any] = set()
        self._sizes: dict[int, tuple[int, int]] = {}
        """Number and bytes, by storage key."""
        # The result of an operation may share its memory with tensors that existed before.
        self._before = {storage_key(tensor) for tensor in (*model.parameters(), *model.buffers())}
        for parameter in model.parameters():
            parameter.register_post_accumulate_grad_hook(self._move_gradient)  # type: ignore[no-untyped-call]

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, tuple | list) else (result,):
            if isinstance(tensor, Tensor):
                self._note(tensor)
        if self._processor and (within := workspace(func, args, result)):
            self._work(within)
            for kernel in kernels(func, args) - self._kernels:
                self._kernels.add(kernel)
                self._tell("kernel", self._number(), KEPT_BYTES)
        return result

    def _number(self) -> int:
        self._count += 1
        return self._count

    def _tell(self, kind: str, number: int, size: int = 0) -> None:
        if self._processor:
            self.events.append(Event(kind, number, size))

    def _note(self, tensor: Tensor) -> None:
        key = storage_key(tensor)
        if key in self._sizes or key in self._before:
            return
        storage = tensor.untyped_storage()
        number = self._number()
        self._sizes[key] = number, storage.nbytes()
        self._tell("made", number, storage.nbytes())
        self.now += storage.nbytes()
        self._reach()
        weakref.finalize(storage, self._drop, key)

    def _work(self, within: int) -> None:
        number = self._number()
        self._tell("made", number, within)
        self._tell("freed", number)
        self._reach(within)

    def _reach(self, within: int = 0) -> None:
        self.peak = max(self.peak, self.now + within)
        self.together = max(self.together, self.now + self._gradients + within)

    def _drop(self, key: int, became: str = "freed") -> int:
        number, size = self._sizes.pop(key, (0, 0))
        if number:
            self._tell(became, number)
        self.now -= size
        return size

    def _move_gradient(self, parameter: Tensor) -> None:
        if parameter.grad is not None:
            self._gradients += self._drop(storage_key(parameter.grad), "gradient")


def storage_key(tensor: Tensor) -> int:
    """A key that is the same for tensors that share their memory."""
    return int(tensor.untyped_storage()._cdata)


def build(application: Application, config: RunConfig) -> nn.Module:
    """The model as a run has it, on the meta device."""
    with torch.device("meta"):
        model: nn.Module = application.module("model").build_model(config)
    model = model.to(run_dtype(config))
    if config.train.channels_last:
        for parameter in model.parameters():
            if parameter.dim() in LAYOUTS:
                parameter.data = parameter.data.contiguous(memory_format=LAYOUTS[parameter.dim()])
    return model


def shapes(application: Application, config: RunConfig, batch: int) -> tuple[Tensor, Tensor]:
    """Inputs and targets of ``batch`` samples, on the meta device. Raises ``InputError`` where they are unknown."""
    if not application.has("shapes"):
        inputs, targets = shapes_of_sample(application, config, batch)
    else:
        inputs, targets = (tensor.contiguous() for tensor in application.module("shapes").batch_shapes(config, batch))
    return inputs.to(run_dtype(config)) if inputs.is_floating_point() else inputs, targets


def on_processor(config: RunConfig) -> bool:
    """Whether the run was told that its ranks compute on processors and not on accelerators."""
    return config.parallel.accelerator == "cpu"


def run_dtype(config: RunConfig) -> torch.dtype:
    """The type of parameters, inputs and losses."""
    return torch.float64 if config.train.precision == "64-true" else torch.float32


def split(
    application: Application, config: RunConfig, model: nn.Module, shape: MeshShape, place: tuple[int, ...],
    traffic: Traffic,
) -> dict[int, Peers]:  # fmt: skip
    """Split ``model`` as on the rank at ``place``, and share its batch norms; return the axes."""
    axes: dict[int, Peers] = {
        FIRST_DIM + number: CountingPeers(rank, size, traffic)
        for number, (rank, size) in enumerate(zip(place, shape.spatial, strict=True))
        if size > 1
    }
    peers = CountingPeers(rank_of(place, shape), shape.spatial_size * config.train.batchnorm_group_size, traffic)
    if axes:
        if not application.has("parallel"):
            raise InputError(f"{application.name} has no module `parallel` that splits its model")
        mesh = Mesh(shape, rank_of(place, shape), axes, peers)
        application.module("parallel").parallelize(model, config, mesh)
    elif config.train.batchnorm_group_size > 1:
        replace_batch_norm(model, peers)
    if config.parallel.activation_checkpointing:
        from hpcbench.parallel.activation_checkpointing import checkpoint_activations

        checkpoint_activations(application.module("parallel").checkpointed_blocks(model))
    return axes


def rank_of(place: tuple[int, ...], shape: MeshShape) -> int:
    """The number of a rank in its group; the last axis varies fastest."""
    rank = 0
    for index, size in zip(place, shape.spatial, strict=True):
        rank = rank * size + index
    return rank


def autocast(config: RunConfig) -> AbstractContextManager[None]:
    """Mixed precision where the run uses it, for tensors that report the CPU as their device."""
    dtype = AUTOCAST.get(counted_precision(config))
    return nullcontext() if dtype is None else torch.autocast("cpu", dtype=dtype)


def counted_precision(config: RunConfig) -> str:
    """The precision that is counted; for ``auto``, that of an accelerator."""
    return "bf16-mixed" if config.train.precision == "auto" else config.train.precision
