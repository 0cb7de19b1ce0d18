"""A processor that captures graphs as accelerators do: operations are recorded with their memory, and not computed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

FORBIDDEN = ("_local_scalar_dense", "nonzero", "is_nonzero")
"""Operations that would make the host wait for the device, which a capture refuses."""


class Recorder(TorchDispatchMode):
    """Records operations with their arguments and results; what they changed is put back at the end."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operations: list[tuple[Any, Any, Any, Any]] = []
        self.before: list[tuple[Tensor, Tensor]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func.overloadpacket.__name__
        assert name not in FORBIDDEN, f"{name} would wait for the device during a capture"
        for tensor in changed(func, args, kwargs):
            self.before.append((tensor, tensor.clone()))
        result = func(*args, **kwargs)
        self.operations.append((func, args, kwargs, result))
        return result

    def put_back(self) -> None:
        """Undo, last first."""
        for tensor, value in reversed(self.before):
            tensor.copy_(value)


def changed(func: Any, args: Any, kwargs: Any) -> list[Tensor]:
    """The tensors that an operation writes into."""
    if func.overloadpacket.__name__ == "native_batch_norm":
        return flat(args[3:5])  # running statistics, of which its schema says nothing
    found = []
    for number, argument in enumerate(func._schema.arguments):
        if argument.alias_info is None or not argument.alias_info.is_write:
            continue
        value = args[number] if number < len(args) else kwargs.get(argument.name)
        found += flat(value)
    return found


def flat(value: Any) -> list[Tensor]:
    """Tensors in nested lists."""
    if isinstance(value, Tensor):
        return [value]
    return [part for entry in value for part in flat(entry)] if isinstance(value, list | tuple) else []


class Graph:
    """What a capture recorded."""

    operations: list[tuple[Any, Any, Any, Any]]

    @torch.no_grad()
    def replay(self) -> None:
        """Every operation again, from the same memory into the same memory."""
        for func, args, kwargs, result in self.operations:
            again = func(*args, **kwargs)
            written = {id(tensor) for tensor in changed(func, args, kwargs)}
            if not func.is_view:
                for old, new in zip(flat(result), flat(again), strict=True):
                    if id(old) not in written and old.data_ptr() != new.data_ptr():
                        old.copy_(new)


class Stream:
    """Work on a processor is done in order anyway."""

    def wait_stream(self, other: Stream) -> None:
        """Nothing is under way."""


class RecordingDevice:
    """The functions of ``torch.cuda`` that a capture needs."""

    CUDAGraph, Stream = Graph, Stream

    def __init__(self) -> None:
        self.captures = 0

    def is_available(self) -> bool:
        """Runs are on the processor."""
        return False

    def current_stream(self) -> Stream:
        """The one stream."""
        return Stream()

    def synchronize(self) -> None:
        """Nothing is under way."""

    @contextmanager
    def stream(self, stream: Stream) -> Iterator[None]:
        """Any stream is the one stream."""
        yield

    @contextmanager
    def graph(self, graph: Graph) -> Iterator[None]:
        """Record what happens within."""
        self.captures += 1
        with Recorder() as recorder:
            yield
        with torch.no_grad():
            recorder.put_back()
        graph.operations = recorder.operations
