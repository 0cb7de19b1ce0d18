"""Draws the picture of docs/prediction.md: ``python docs/pictures/make_prediction.py`` (seconds)."""

from __future__ import annotations

from pathlib import Path

from hpcbench.batch.machine import MACHINES, read_machine
from hpcbench.prediction.fitted import fit_published
from hpcbench.prediction.platforms import shipped_machines
from hpcbench.prediction.plots import parts_figure
from hpcbench.prediction.predictions import Options, predictions
from hpcbench.results import style

HERE = Path(__file__).parent
NODES = (16, 32, 64, 128, 256, 512)


def main() -> None:
    """DeepCAM on Perlmutter, each size with the batch that is fastest there."""
    machine = read_machine(MACHINES / "perlmutter-gpu.yaml")
    options = Options(
        ("deepcam",), machine, NODES, None, "reference", "v2.0", 1, True, None, (), None, False, None
    )  # fmt: skip
    found = predictions(options, fit_published(), shipped_machines())
    style.save(parts_figure(found.predicted[0]).figure, HERE / "prediction.svg")


if __name__ == "__main__":
    main()
