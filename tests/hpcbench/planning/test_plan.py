"""Counts of what a mesh asks of a rank, against figures by hand, against real passes, and against what ranks send."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from hpcbench.application import Application, find_application
from hpcbench.config.optimizers import OPTIMIZERS
from hpcbench.config.resolve import resolve
from hpcbench.config.schema import OptimConfig, RunConfig
from hpcbench.optim.registry import create_optimizer
from hpcbench.parallel.activation_checkpointing import checkpoint_activations
from hpcbench.parallel.group import Group
from hpcbench.parallel.mesh import Mesh
from hpcbench.parallel.mesh_shape import MeshShape
from hpcbench.parallel.spatial.layers import own_part
from hpcbench.planning.counting import PassCount, count_pass, shapes
from hpcbench.planning.plan import Machine, counted_ranks, mesh_shapes, moments, plan_meshes, share_batch
from hpcbench.planning.sharded_bytes import shard_bytes
from hpcbench.train.checkpoint_io import Checkpoint
from hpcbench.train.checkpoint_writer import CheckpointWriter
from hpcbench.train.dropout import set_sample_keys
from staging.errors import InputError
from staging.ranks.launch import Launch
from tests.hpcbench.parallel.spatial.threads import ThreadAxis, on_ranks

COSMOFLOW, DEEPCAM = find_application("cosmoflow"), find_application("deepcam")
KIB, MIB = 2**10, 2**20


def configured(application: Application, preset: str, **settings: Any) -> RunConfig:
    plain = {"train.precision": "32-true", **{key.replace("__", "."): value for key, value in settings.items()}}
    return resolve(application, preset, overrides=plain)


def counted(application: Application, config: RunConfig, *place: int, of: tuple[int, ...], batch: int = 1) -> PassCount:
    return count_pass(application, config, MeshShape(1, of), place, batch)


def test_halos_of_128_cubed_are_those_by_hand() -> None:
    """A face is 4 bytes * C * H * W of what a convolution reads: 0.25, 0.5, 0.25, 0.125 and 0.0625 MiB."""
    config = configured(COSMOFLOW, "mlperf")
    faces = [256 * KIB, 512 * KIB, 256 * KIB, 128 * KIB, 64 * KIB]
    gather = 512 * 1 * 4 * 4 * 4
    inner, first = counted(COSMOFLOW, config, 1, of=(4,)), counted(COSMOFLOW, config, 0, of=(4,))
    assert inner.traffic.forward == 2 * sum(faces) + 3 * gather
    assert inner.traffic.backward == 2 * sum(faces[1:]), "the input needs no gradient"
    assert first.traffic.forward == sum(faces) + 3 * gather
    assert first.traffic.backward == sum(faces[1:])
    assert inner.traffic.sums == 0


def test_halos_of_512_cubed_are_the_published_ones() -> None:
    """4, 8, 4, 2, 1 and 0.5 MiB, and of the last block a face of 1,024 channels on 8 x 8."""
    settings = {"data__sample_size": 512, "simulate__universe_size": 512, "model__conv_layers": 7}
    found = counted(COSMOFLOW, configured(COSMOFLOW, "mlperf", **settings), 2, of=(4,))
    faces = [4 * MIB, 8 * MIB, 4 * MIB, 2 * MIB, 1 * MIB, MIB // 2, 4 * 1024 * 8 * 8]
    assert found.traffic.forward == 2 * sum(faces) + 3 * 4 * 2048 * 4 * 4
    assert found.traffic.backward == 2 * sum(faces[1:])


def test_one_plane_travels_to_kernels_of_two() -> None:
    """From the far side in the forward pass, and back; the last rank fetches none. Faces are padded by one already."""
    config = configured(COSMOFLOW, "smoke", model__kernel_size=2)
    faces = [4 * 4 * 17 * 17, 4 * 8 * 9 * 9, 4 * 16 * 5 * 5]
    gather = 4 * 32 * 1 * 2 * 2
    first, last = (counted(COSMOFLOW, config, place, of=(2,)).traffic for place in (0, 1))
    assert (first.forward, last.forward) == (gather, sum(faces) + gather)
    assert (first.backward, last.backward) == (sum(faces[1:]), 0)


@pytest.mark.parametrize(
    ("application", "settings", "ranks"),
    [
        (COSMOFLOW, {}, {2: 2}),
        (COSMOFLOW, {"model__kernel_size": 2, "model__dropout": 0.3}, {2: 4}),
        (COSMOFLOW, {}, {2: 2, 3: 2}),
        pytest.param(DEEPCAM, {}, {2: 3}, marks=pytest.mark.slow),
    ],
)
def test_counts_are_what_ranks_really_send(
    application: Application, settings: dict[str, Any], ranks: dict[int, int]
) -> None:
    config = configured(application, "smoke", **settings)
    shape = MeshShape(1, tuple(ranks.values()))

    def work(axes: dict[int, ThreadAxis]) -> tuple[tuple[int, ...], int]:
        model = application.module("model").build_model(config)
        mesh = Mesh(shape, 0, dict(axes), axes[2])
        application.module("parallel").parallelize(model, config, mesh)
        real_pass(application, config, model, 2, axes)
        sent = sum(axis.world.messages[axis.rank] for axis in axes.values())
        return tuple(axis.rank for axis in axes.values()), 4 * sent

    for place, sent in on_ranks(ranks, work):
        count = counted(application, config, *place, of=shape.spatial, batch=2)
        assert count.traffic.forward + count.traffic.backward == sent, place


def real_pass(
    application: Application, config: RunConfig, model: nn.Module, batch: int, axes: dict[int, Any],
    dtype: torch.dtype | None = None,
) -> int:  # fmt: skip
    """Forward and backward pass on random data; bytes of what autograd keeps, without parameters and input."""
    inputs, targets = shapes(application, config, batch)
    inputs, targets = torch.rand(inputs.shape), torch.zeros(targets.shape, dtype=targets.dtype)
    inputs = inputs.contiguous(memory_format=torch.channels_last_3d if inputs.dim() == 5 else torch.channels_last)
    part = own_part(inputs, axes)
    set_sample_keys(model, torch.arange(batch))
    found: dict[int, Tensor] = {}

    def keep(tensor: Tensor) -> Tensor:
        found[tensor.untyped_storage().data_ptr()] = tensor.detach()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        with torch.autocast("cpu", dtype=dtype, enabled=dtype is not None):
            output = model(part)
        loss = application.module("task").build_task(config).loss(output.float(), targets)
    others = {tensor.untyped_storage().data_ptr() for tensor in (*model.parameters(), *model.buffers(), part, targets)}
    loss.backward()
    return sum(tensor.untyped_storage().nbytes() for key, tensor in found.items() if key not in others)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("application", "precision", "checkpointed"),
    [
        (COSMOFLOW, "32-true", False), (COSMOFLOW, "32-true", True), (DEEPCAM, "32-true", False),
        (DEEPCAM, "bf16-mixed", False), (DEEPCAM, "bf16-mixed", True),
    ],
)  # fmt: skip
def test_activations_are_those_of_a_real_pass(application: Application, precision: str, checkpointed: bool) -> None:
    config = configured(
        application, "smoke", train__precision=precision, parallel__activation_checkpointing=checkpointed
    )
    model = application.module("model").build_model(config)
    for parameter in model.parameters():
        if parameter.dim() > 3:
            layout = torch.channels_last_3d if parameter.dim() == 5 else torch.channels_last
            parameter.data = parameter.data.contiguous(memory_format=layout)
    if checkpointed:
        checkpoint_activations(application.module("parallel").checkpointed_blocks(model))
    dtype = torch.bfloat16 if precision == "bf16-mixed" else None
    measured = real_pass(application, config, model, 3, {}, dtype)
    count = counted(application, config, 0, of=(1,), batch=3)
    # Of batch norm's vectors of statistics torch says, without data, that they are bfloat16, too.
    assert count.activations == (measured if dtype is None else pytest.approx(measured, rel=0.02))
    assert count.parameters == sum(parameter.nbytes for parameter in model.parameters())


@pytest.mark.slow
def test_activations_fall_with_the_ranks_of_a_sample() -> None:
    splits: list[tuple[Application, dict[str, Any], list[tuple[int, ...]]]] = [
        (COSMOFLOW, {}, [(2,), (4,), (2, 2)]),
        (DEEPCAM, {"model__middle_blocks": 1}, [(4,)]),
    ]
    for application, settings, tried in splits:
        config = configured(application, "mlperf", **settings)
        whole = counted(application, config, 0, of=(1,)).activations
        for spatial in tried:
            size = MeshShape(1, spatial).spatial_size
            part = counted(application, config, *(axis // 2 for axis in spatial), of=spatial).activations
            assert whole / size < part < 1.1 * whole / size, spatial


def test_a_rank_holds_its_part_of_the_input_where_it_can_be_read_alone() -> None:
    whole = 4 * (4 * 16**3 + 4)
    part = 4 * (4 * 16**3 // 2 + 4)
    assert counted(COSMOFLOW, configured(COSMOFLOW, "smoke"), 0, of=(1,)).input == whole
    assert counted(COSMOFLOW, configured(COSMOFLOW, "smoke"), 0, of=(2,)).input == whole, "turned as a whole"
    assert counted(COSMOFLOW, configured(COSMOFLOW, "smoke", data__augment=False), 0, of=(2,)).input == part


@pytest.mark.slow
def test_batch_norms_put_their_statistics_into_sums() -> None:
    """2 * C + 1 numbers forward and 2 * C backward for each layer, whatever the split, and the mean over the image."""
    config = configured(DEEPCAM, "smoke")
    model = DEEPCAM.module("model").build_model(config)
    channels = [layer.num_features for layer in model.modules() if isinstance(layer, nn.BatchNorm2d)]
    statistics = 4 * sum(4 * each + 1 for each in channels)
    image = 4 * model.pyramid.image_mean[1].in_channels
    assert counted(DEEPCAM, config, 0, of=(2,)).traffic.sums == statistics + 2 * image
    config.train.batchnorm_group_size = 2
    assert counted(DEEPCAM, config, 0, of=(1,)).traffic.sums == statistics


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_state_of_an_optimizer(name: str) -> None:
    parameter = nn.Parameter(torch.ones(3, 2))
    parameter.grad = torch.ones(3, 2)
    for momentum in (None, 0.0) if name == "sgd" else (None,):
        optim = OptimConfig(name=name, momentum=momentum)
        optimizer = create_optimizer(optim, [{"params": [parameter]}], "cpu")
        optimizer.step()
        held = [each for each in optimizer.state[parameter].values() if isinstance(each, Tensor) and each.dim()]
        assert moments(optim) == len(held)


def test_plan_of_a_published_preset() -> None:
    """The global batch of 32 ranks with 4 samples each is kept by accumulation; a rank's parameters are exact."""
    config = configured(COSMOFLOW, "mlperf", data__sample_size=32, model__conv_layers=3)
    plans = plan_meshes(COSMOFLOW, config, Machine(2, 4))
    found = {mesh.shape.words: mesh for mesh in plans.meshes}
    assert next(iter(found)) == "8 x 1"
    assert {mesh.global_batch for mesh in plans.meshes} == {32}
    assert (found["2 x (2x2)"].local_batch, found["2 x (2x2)"].accumulation) == (4, 4)
    model = COSMOFLOW.module("model").build_model(config)
    weights = 4 * sum(parameter.numel() for parameter in model.parameters())
    for mesh in plans.meshes:
        assert (mesh.parameters, mesh.gradients, mesh.optimizer) == (weights, 2 * weights, weights)
        assert mesh.reduced == weights
        assert mesh.memory == 3 * weights + mesh.together + mesh.input, "weights, buckets and momentum"
        assert mesh.peak < mesh.together <= mesh.peak + weights, "gradients come to be while activations go"
        assert mesh.activations < mesh.peak < 2.5 * mesh.activations
        assert mesh.fits is None
    single = counted(COSMOFLOW, config, 1, of=(4,), batch=4).traffic
    assert found["2 x 4"].halo_forward == 4 * single.forward
    assert found["2 x 4"].halo_backward == 4 * single.backward
    assert [mesh.nodes for mesh in plans.meshes] == sorted(mesh.nodes for mesh in plans.meshes)


@pytest.mark.parametrize(("application", "name"), [
    (COSMOFLOW, "adamw"), pytest.param(DEEPCAM, "lars", marks=pytest.mark.slow), (COSMOFLOW, "sgd"),
])  # fmt: skip
def test_a_checkpoint_takes_the_memory_that_its_copy_takes(application: Application, name: str, tmp_path: Path) -> None:
    """Of a real model after a step, with batch-norm statistics; but for the optimizer's counters."""
    config = configured(application, "smoke", train__precision="64-true", optim__name=name)
    model = application.module("model").build_model(config).double()
    parameters = list(model.parameters())
    optimizer = create_optimizer(config.optim, [{"params": parameters}], "cpu")
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    alone = Group(Launch(rank=0, world_size=1), torch.device("cpu"), None)
    writer = CheckpointWriter(tmp_path, 1, alone, asynchronous=False)
    writer.save(Checkpoint(model.state_dict(), optimizer.state_dict(), {}, {"epoch": 1, "step": 1}, {}))
    planned = {mesh.checkpoint for mesh in plan_meshes(application, config, Machine(1, 2)).meshes}
    assert len(planned) == 1, "whatever the mesh"
    assert 0 <= writer.host_bytes - planned.pop() <= 8 * len(parameters)


def test_the_peak_of_a_pass_is_in_the_largest_layer() -> None:
    """When the first pooling goes back: its input, the places of its maxima in int64, both sides' gradients."""
    found = counted(COSMOFLOW, configured(COSMOFLOW, "mlperf"), 0, of=(1,))
    convolved, pooled = 4 * 32 * 128**3, 4 * 32 * 64**3
    assert found.peak == pytest.approx(2 * convolved + 2 * pooled + pooled, rel=1e-6)


def test_cosmoflow_has_the_published_parameters() -> None:
    assert counted(COSMOFLOW, configured(COSMOFLOW, "mlperf"), 0, of=(1,)).parameters == 4 * 8_907_556


@pytest.mark.slow
def test_what_fits_and_keeps_the_batch_comes_first() -> None:
    plans = plan_meshes(COSMOFLOW, config := configured(COSMOFLOW, "smoke"), Machine(1, 4), global_batch=1)
    assert [mesh.keeps_batch for mesh in plans.meshes] == [True, True, False, False]
    assert {mesh.shape.words: mesh.global_batch for mesh in plans.meshes[2:]} == {"4 x 1": 4, "2 x 2": 2}
    sizes = sorted(mesh.memory for mesh in plans.meshes)
    plans = plan_meshes(COSMOFLOW, config, Machine(1, 4, sizes[1]), global_batch=1)
    assert [mesh.fits for mesh in plans.meshes] == [True, True, False, False]
    with pytest.raises(InputError, match=r"no mesh of 4 ranks fits 1e-06 GB per GPU: the least is 1 x .* GB; lower"):
        plan_meshes(COSMOFLOW, config, Machine(1, 4, 1000))


def test_sharded_states_are_a_part_of_them() -> None:
    config = configured(COSMOFLOW, "smoke", parallel__shard_states=True)
    whole = plan_meshes(COSMOFLOW, configured(COSMOFLOW, "smoke"), Machine(1, 2)).meshes[0]
    mesh = next(each for each in plan_meshes(COSMOFLOW, config, Machine(1, 2)).meshes if each.shape.data == 2)
    assert whole.gradients / 4 <= mesh.gradients < 0.26 * whole.gradients, "a half, and no buffers to travel in"
    assert mesh.optimizer == 2 * mesh.gradients
    assert mesh.parameters == mesh.gradients + whole.parameters, "a small model is one unit, whole while it is used"
    assert mesh.reduced == 2 * whole.reduced, "and it is brought together once"
    assert shard_bytes(nn.Linear(3, 5), 2) == 4 * (3 * 3 + 3)


@pytest.mark.slow
def test_splits_that_the_model_refuses_are_left_out() -> None:
    """16 rows are one at stride 16; and what is nowhere coarser than a refused split is not tried."""
    config = configured(DEEPCAM, "smoke", data__height=16, data__width=32)
    plans = plan_meshes(DEEPCAM, config, Machine(1, 4))
    assert [mesh.shape.words for mesh in plans.meshes] == ["4 x 1"]
    assert set(plans.refused) == {MeshShape(2, (2,)), MeshShape(1, (4,)), MeshShape(1, (2, 2))}
    (reason,) = set(plans.refused.values())
    assert "fewer than the 2 ranks that it is split over; split over at most 1" in reason


def test_no_mesh_at_all() -> None:
    config = configured(DEEPCAM, "smoke", train__batchnorm_group_size=2)
    with pytest.raises(InputError, match=r"1 rank forms no mesh: train\.batchnorm_group_size"):
        plan_meshes(DEEPCAM, config, Machine(1, 1))


class Whole(Application):
    """An application that splits nothing."""

    def has(self, part: str) -> bool:
        return part != "parallel" and super().has(part)


def test_an_application_without_the_parts() -> None:
    application = Whole(**dataclasses.asdict(COSMOFLOW))
    plans = plan_meshes(application, configured(COSMOFLOW, "smoke"), Machine(1, 2))
    assert [mesh.shape.words for mesh in plans.meshes] == ["2 x 1"]
    assert plans.refused == {MeshShape(1, (2,)): "cosmoflow has no module `parallel` that splits its model"}
    bare = Application("bare", "Nothing", "bare", "hpcbench.config")
    with pytest.raises(
        InputError, match=r"bare has no module 'shapes'.*; set --data\.root DIR, or write .*`hpcbench app shapes bare"
    ):
        plan_meshes(bare, configured(COSMOFLOW, "smoke"), Machine(1, 2))


def test_meshes_of_ranks() -> None:
    words = [shape.words for shape in mesh_shapes(8, 2)]
    assert words == ["8 x 1", "4 x 2", "2 x 4", "2 x (2x2)", "1 x 8", "1 x (2x4)", "1 x (4x2)"]
    assert [shape.words for shape in mesh_shapes(6, 1)] == ["6 x 1", "3 x 2", "2 x 3", "1 x 6"]
    assert max(shape.spatial_size for shape in mesh_shapes(1024, 1)) == 64


def test_batches_are_shared() -> None:
    assert share_batch(512, 128, 4) == (4, 1)
    assert share_batch(512, 32, 4) == (4, 4)
    assert share_batch(24, 4, 4) == (3, 2)
    assert share_batch(2, 4, 4) == (1, 1)
    assert share_batch(30, 4, 4) == (1, 7)


def test_nodes_of_a_sample_and_the_ranks_that_are_counted() -> None:
    machine = Machine(3, 4)
    assert [machine.nodes_per_sample(MeshShape(12 // size, (size,))) for size in (1, 2, 3, 4, 6, 12)] == [
        1, 1, 2, 1, 2, 3,
    ]  # fmt: skip
    assert counted_ranks((2, 2)) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert counted_ranks((8,)) == [(4,), (7,)]


def test_float64_is_twice_float32() -> None:
    single, double = (
        plan_meshes(COSMOFLOW, configured(COSMOFLOW, "smoke", train__precision=precision), Machine(1, 2)).meshes[0]
        for precision in ("32-true", "64-true")
    )
    assert (double.parameters, double.reduced) == (2 * single.parameters, 2 * single.reduced)
    assert double.flop == single.flop
    assert 1.6 * single.activations < double.activations < 2 * single.activations, "pooling keeps int64 places"
