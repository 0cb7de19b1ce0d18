"""Split CosmoFlow over ranks: the convolution blocks in depth, height and width; every rank has the dense head."""

from __future__ import annotations

from torch import nn

from apps.cosmoflow.config import Config
from apps.cosmoflow.model import Block, CosmoFlow
from hpcbench.parallel.mesh import Mesh
from hpcbench.parallel.spatial.convolution import Axes, SplitConvolution
from hpcbench.parallel.spatial.pooling import Gather, SplitPool
from staging.errors import InputError


def parallelize(model: CosmoFlow, config: Config, mesh: Mesh) -> None:
    """Split the blocks of ``model``, in place, along the mesh's axes, as long as every rank has a part of their output.

    The blocks after that, and the dense head, work on whole samples, which by then all ranks of a group have.
    """
    size, axes = config.data.sample_size, mesh.axes
    most = max(axis.size for axis in axes.values())
    if size // 2 < most:
        raise InputError(
            f"parallel.spatial splits a dimension over {most} ranks, of which each must have a part of the first "
            f"block's {size // 2} planes (data.sample_size {size}); split it over at most {size // 2}"
        )
    for number, block in enumerate(list(model.blocks)):
        assert isinstance(block, Block)
        if size // 2 < most:
            model.blocks.insert(number, Gather((size,) * 3, axes))
            return
        split_block(block, size, axes)
        size //= 2
    model.blocks.append(Gather((size,) * 3, axes))


def split_block(block: Block, size: int, axes: Axes) -> None:
    """Split one block whose input is a cube of ``size``; its own padding then applies to the other dimensions only."""
    padding = {}
    for dim in axes:
        last = 2 * (4 - dim)  # functional.pad counts from the last dimension
        if any(block.far_side_padding):
            padding[dim] = (block.far_side_padding[last], block.far_side_padding[last + 1])
        block.far_side_padding[last : last + 2] = [0, 0]
    block.set_submodule("conv", SplitConvolution(block.conv, (size,) * 3, axes, padding))
    block.set_submodule("pool", SplitPool(block.pool, (size,) * 3, axes))


def checkpointed_blocks(model: CosmoFlow) -> list[nn.Module]:
    """The parts that keep only their input under ``parallel.activation_checkpointing``."""
    return [block for block in model.blocks if isinstance(block, Block)]
