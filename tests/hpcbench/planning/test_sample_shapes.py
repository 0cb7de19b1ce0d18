"""The shapes of a batch from a sample, where the application does not tell them."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from hpcbench.application import Application, find_application
from hpcbench.config.resolve import resolve
from hpcbench.planning.counting import shapes
from hpcbench.planning.plan import Machine, plan_meshes


class Shapeless(Application):
    """An application that does not tell its shapes."""

    def has(self, part: str) -> bool:
        return part != "shapes" and super().has(part)


def test_shapes_come_from_a_sample_where_the_application_does_not_tell_them(tmp_path: Path) -> None:
    cosmoflow = find_application("cosmoflow")
    config = resolve(cosmoflow, "smoke", overrides={"data.root": str(tmp_path)})
    config.data.train_samples = config.data.validation_samples = None
    for split in ("train", "validation"):
        cosmoflow.module("simulate").write_sample(config, tmp_path, split, 0)
    shapeless = Shapeless(**dataclasses.asdict(cosmoflow))
    for found, told in zip(shapes(shapeless, config, 3), shapes(cosmoflow, config, 3), strict=True):
        assert (found.shape, found.dtype, found.device) == (told.shape, told.dtype, told.device)
    machine = Machine(1, 1)
    assert plan_meshes(shapeless, config, machine) == plan_meshes(cosmoflow, config, machine)
