"""Split DeepCAM over ranks: all of its layers in height and width; its logits are gathered at the end."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from apps.deepcam.config import Config
from apps.deepcam.model import DeepCAM
from hpcbench.parallel.batchnorm_group import GroupBatchNorm
from hpcbench.parallel.mesh import Mesh
from hpcbench.parallel.spatial.convolution import Axes
from hpcbench.parallel.spatial.layers import split_layers
from hpcbench.parallel.spatial.pooling import Gather

AFTER_THE_MEAN = ("pyramid.image_mean.1", "pyramid.image_mean.2", "pyramid.image_mean.3")
"""Layers that work on the mean over the whole image, which all ranks of a group have."""


def parallelize(model: DeepCAM, config: Config, mesh: Mesh) -> None:
    """Split all layers of ``model``, in place, along the mesh's axes, so that all ranks get the whole logits."""
    height, width, channels = config.data.height, config.data.width, len(config.data.channels)
    peers = mesh.statistics
    assert peers is not None, "a mesh that splits samples has them"

    def normalize(layer: _BatchNorm, sizes: Sequence[int], axes: Axes) -> nn.Module:
        return GroupBatchNorm(layer, peers)

    split_layers(model, (channels, height, width), mesh.axes, whole=AFTER_THE_MEAN, normalize=normalize)
    model.decoder.refine.append(Gather((height, width), mesh.axes))


def checkpointed_blocks(model: DeepCAM) -> list[nn.Module]:
    """The parts that keep only their input under ``parallel.activation_checkpointing``."""
    encoder = model.encoder
    blocks = [block for part in (encoder.entry, encoder.middle, encoder.exit) for block in part]
    return [encoder.stem, *(block for block in blocks if list(block.children())), model.pyramid, model.decoder]
