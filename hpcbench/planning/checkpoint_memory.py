"""Host memory that a checkpoint takes on rank 0, besides that of the training, so that a thread can write it."""

from __future__ import annotations

from torch import Tensor, nn

from hpcbench.parallel.shard_gathering import ShardCopy, packed_bytes


def checkpoint_bytes(model: nn.Module, moments: int, data: int | None) -> int:
    """Bytes of the copies of ``model`` (whole) and of ``moments`` tensors for each parameter in its optimizer.

    ``data`` is the number of ranks that parameters are sharded over, ``None`` where they are not. Where they are, rank
    0 holds its own shards, those of one other rank as they arrive, and the whole. Step counters, one number for each
    parameter, are left out.
    """
    parameters = [parameter if parameter.dim() else parameter.reshape(1) for parameter in model.parameters()]
    whole: int = (1 + moments) * sum(parameter.nbytes for parameter in parameters)
    state: dict[str, Tensor] = model.state_dict(keep_vars=True)
    buffers = sum(tensor.nbytes for tensor in state.values() if not isinstance(tensor, nn.Parameter))
    if data is None:
        return whole + buffers
    ranks = tuple(range(data))
    copies = [ShardCopy(parameter.shape, parameter.dtype, 0, ranks) for parameter in parameters] * (1 + moments)
    received = max((packed_bytes(copies, rank) for rank in ranks[1:]), default=0)
    return whole + buffers + packed_bytes(copies, 0) + received
