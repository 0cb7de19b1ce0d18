"""Device time by kernels: sums of rooflines by hand, and the measured step at its own batch and roofs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hpcbench.characterisation.file import write_characterisation
from hpcbench.characterisation.model import (
    Characterisation,
    Footprint,
    Host,
    InputData,
    Kernel,
    Roof,
    StepTimes,
)  # fmt: skip
from hpcbench.prediction.kernel_time import bounds_s, kernels_of
from hpcbench.prediction.platforms import Fact, Platform
from hpcbench.prediction.step_time import case_of
from hpcbench.prediction.workload import work_of
from staging.errors import InputError

PEAK, BANDWIDTH, LAUNCH = 1e12, 1e11, 1e-5


def kernel(kind: str, flop: float, moved: float, count: int, alone: float | None = None, fixed: float = 0.0) -> Kernel:
    return Kernel("op", kind, "forward", "float32", ((1,),), "", count, flop, moved, 0.0, 0.0, fixed, alone)  # type: ignore[arg-type]


def characterisation_with(*kernels: Kernel, step_s: float = 0.1, **changes: object) -> Characterisation:
    """A characterisation at a local batch of 4 with these kernels."""
    made = Characterisation(
        application="cosmoflow", title="", preset="p", date="2026-01-01T00:00:00+00:00", version="0",
        host=Host("here", "cpu", "a processor", 1, 1, 1, None), precision="32-true", local_batch=4, accumulation=1,
        optimizer="sgd", parameters=10, useful_flop=work_of("cosmoflow").useful_flop, kernels=kernels,
        footprint=Footprint(1, 1, 1, 1, 4, 1, 1), input=InputData("npy", 64, 16, 1000.0, 1, 1000.0),
        roofs=(Roof("compute", "float32", PEAK, "FLOP/s", ""), Roof("memory", "memory", BANDWIDTH, "B/s", ""),
               Roof("launch", "launch", LAUNCH, "s", "")),
        steps=(StepTimes(1, 1, 4, 3, step_s, step_s, step_s, (step_s,), (1.0,)),),
    )  # fmt: skip
    return replace(made, **changes)  # type: ignore[arg-type]


def device_s(path: Path, batch: float, peak: float = PEAK, bandwidth: float = BANDWIDTH) -> float:
    kernels, work, *_ = kernels_of(path)
    platform = Platform("m", "m", 1, "", None, bandwidth, peak, None, Fact(1, 1), Fact(1, 1))
    return float(kernels.device_s(case_of(work, platform, 1, 1, batch, newer=True)))


def test_each_kernel_is_bound_by_the_slowest_roof() -> None:
    each = (kernel("convolution", 4e10, 1e8, 2), kernel("elementwise", 9e12, 4e8, 3), kernel("copy", 0, 10, 5))
    # 40 ms of operations, 4 ms of bytes (what is no product has no peak), a launch
    assert bounds_s(each, 4, 4, PEAK, BANDWIDTH, LAUNCH) == pytest.approx([0.08, 0.012, 5e-5])
    assert bounds_s(each, 4, 8, PEAK, BANDWIDTH, LAUNCH) == pytest.approx([0.16, 0.024, 5e-5])
    assert bounds_s((kernel("copy", 0, 4e8, 1, fixed=4e8),), 4, 8, PEAK, BANDWIDTH, 0) == pytest.approx([0.004])


def test_the_measured_step_comes_back_and_kernels_scale_by_their_own_roof(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    # convolutions reach half of their roof, copies all of it: 80 + 20 ms, in a step of 110 ms
    write_characterisation(
        characterisation_with(
            kernel("convolution", 4e10, 1e8, 1, alone=0.08), kernel("copy", 0, 2e9, 1, alone=0.02), step_s=0.11
        ),
        path,
    )
    assert device_s(path, 4) == pytest.approx(0.11)
    assert device_s(path, 8) == pytest.approx(0.22)
    assert device_s(path, 4, peak=2 * PEAK) == pytest.approx(0.11 - 0.044)
    assert device_s(path, 4, bandwidth=2 * BANDWIDTH) == pytest.approx(0.11 - 0.011)
    assert kernels_of(path).peak == "peak_32bit_tflop_s"


@pytest.mark.parametrize(("allowed", "field"), [(None, "peak_tf32_tflop_s"), (False, "peak_32bit_tflop_s")])
def test_float32_that_a_gpu_rounds_is_held_against_tf32(allowed: bool | None, field: str, tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    made = characterisation_with(
        kernel("convolution", 4e10, 1e8, 1, alone=0.08), kernel("copy", 0, 2e9, 1, alone=0.02), step_s=0.11,
        configuration={"train": {"tf32": allowed}},
    )  # fmt: skip
    roofs = (*made.roofs, Roof("compute", "tf32", 7 * PEAK, "FLOP/s", ""))
    write_characterisation(replace(made, roofs=roofs), path)
    assert kernels_of(path).peak == field
    peak = 7 * PEAK if allowed is None else PEAK
    assert device_s(path, 4, peak=peak) == pytest.approx(0.11)
    # Convolutions are bound by their operations at either peak, so twice of it halves them.
    assert device_s(path, 4, peak=2 * peak) == pytest.approx(0.11 - 0.044)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"steps": ()}, "has no measured roofs and steps"),
        ({"roofs": ()}, "has no measured roofs and steps"),
        ({"precision": "64-true"}, "is of precision 64-true; characterise in one of 32-true"),
        ({"accumulation": 2}, "accumulates 2 passes"),
        (
            {"configuration": {"parallel": {"spatial": "2"}}, "host": Host("here", "cpu", "", 1, 2, 1, None),
             "steps": (StepTimes(2, 1, 4, 3, 0.1, 0.1, 0.1, (0.1, 0.1), (1.0, 1.0)),)},
            "counts one of 2 ranks that share each sample",
        ),
        ({"input": InputData("npy", None, None, None, None, 1.0)}, "does not tell the samples of the dataset"),
        ({"application": "other"}, "no published round has 'other'"),
    ],
)  # fmt: skip
def test_what_does_not_tell_a_step_is_refused(changes: dict[str, object], message: str, tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    write_characterisation(characterisation_with(kernel("copy", 0, 1e9, 1), **changes), path)
    with pytest.raises(InputError, match=message):
        kernels_of(path)
