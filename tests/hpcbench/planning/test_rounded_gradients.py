"""Gradients that travel in fewer bits than they are computed in, as ``hpcbench plan`` counts them."""

from __future__ import annotations

from hpcbench.application import find_application
from hpcbench.config.resolve import resolve
from hpcbench.planning.plan import Machine, plan_meshes


def test_they_are_half_the_bytes_and_a_copy_of_their_own() -> None:
    application = find_application("cosmoflow")
    plain, rounded = (
        plan_meshes(application, resolve(application, "smoke", overrides=overrides), Machine(1, 2)).meshes[0]
        for overrides in ({}, {"parallel.reduce_dtype": "bfloat16"})
    )
    assert rounded.reduced == plain.reduced / 2
    assert rounded.buckets == plain.buckets * 1.5
    assert rounded.memory == plain.memory + plain.buckets / 2
