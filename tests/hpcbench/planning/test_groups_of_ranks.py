"""Meshes whose ranks form batch-norm groups, and those whose ranks do not."""

from __future__ import annotations

from hpcbench.application import find_application
from hpcbench.config.resolve import resolve
from hpcbench.parallel.mesh_shape import MeshShape
from hpcbench.planning.plan import Machine, plan_meshes


def test_a_finer_split_can_form_groups_that_a_coarser_one_cannot() -> None:
    """Of 12 ranks, groups of 4 are formed by 12 x 1 and 4 x 3, while 6 x 2 leaves half a group over."""
    config = resolve(
        find_application("cosmoflow"),
        "smoke",
        overrides={"train.batchnorm_group_size": "4", "train.precision": "32-true"},
    )
    plans = plan_meshes(find_application("cosmoflow"), config, Machine(1, 12))
    assert {mesh.shape for mesh in plans.meshes} == {MeshShape(12, (1,)), MeshShape(4, (3,))}
    assert plans.refused[MeshShape(6, (2,))].startswith("train.batchnorm_group_size (4) must divide the number of")
