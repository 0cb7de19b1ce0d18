"""Measurements of other packages: what makes one unusable, what they share, need and slow down."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from hpcbench import plugins
from hpcbench.config.validate import validate_measurements
from staging.errors import InputError
from tests.hpcbench.conftest import Install, line

OBSERVER = "from hpcbench.train.measurements import Measurement\nfrom hpcbench.train.observers import StepObserver\n"
MAKE = "M = Measurement(Own, lambda config: True, lambda parts: Own())\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1 / 0", "cannot be imported (ZeroDivisionError"),
        ("M = 3", "must be a Measurement, and is a int"),
        ("class Own: pass\n" + MAKE, "must have a StepObserver as its kind"),
        ("class Own(StepObserver): table = 'steps.csv'\n" + MAKE, "writes into 'steps.csv', which must be a name such"),
        ("class Own(StepObserver): table = '../a.csv'\n" + MAKE, "writes into '../a.csv', which must be a name such"),
        ("class Own(StepObserver):\n    def summary(self): return {'x': 1}\n" + MAKE, "has a summary; write rows"),
    ],
)
def test_a_measurement_that_cannot_be_used(install: Install, text: str, said: str) -> None:
    from hpcbench.train.measurements import find_measurement

    install({plugins.MEASUREMENTS: {"own": "strange:M"}}, {"strange.py": OBSERVER + text})
    with pytest.raises(InputError) as error:
        find_measurement("own")
    assert f"measurement 'own' (strange:M of strange-parts) {said}" in str(error.value)


def test_measurements_are_asked_for_by_name_and_share_no_table(install: Install) -> None:
    from hpcbench.config.schema import RunConfig
    from hpcbench.train.measurements import check_measurements, looks_at_gradients

    text = OBSERVER + "class Own(StepObserver):\n    table = 'own.csv'\n    def before_update(self, info): ...\n" + MAKE
    with pytest.raises(InputError, match=r"unknown measurement measure.extra 'own'; no package registers one; install"):
        validate_measurements(["own"])
    install({plugins.MEASUREMENTS: {"own": "strange:M", "other": "strange:M"}}, {"strange.py": text})
    with pytest.raises(InputError, match=r"unknown measurement measure.extra 'owm'; did you mean 'own'\?"):
        validate_measurements(["owm"])
    with pytest.raises(InputError, match=r"measure.extra has 'own' twice; name it once"):
        validate_measurements(["own", "own"])
    config = RunConfig()
    assert not looks_at_gradients(config)
    assert "strange" not in sys.modules
    config.measure.extra = ["own"]
    check_measurements(config, 2)
    assert looks_at_gradients(config)
    config.measure.extra = ["own", "other"]
    with pytest.raises(InputError, match=r"measure.extra: 'own' has the table of another one; leave one of them"):
        check_measurements(config, 2)


NEEDING = """
from staging.errors import InputError
class Own(StepObserver): table = 'own.csv'
def check(config, parts):
    if parts < 4:
        raise InputError(f"own needs four parts of a step, and has {parts}")
M = Measurement(Own, lambda config: config.train.seed, lambda parts: Own(), check=check, slowed_steps=lambda config: 7)
"""


def test_what_a_measurement_needs_and_slows_is_asked_where_a_run_has_it(install: Install) -> None:
    from hpcbench.config.schema import RunConfig
    from hpcbench.train.measurements import check_measurements, slowed_steps

    install({plugins.MEASUREMENTS: {"own": "strange:M"}}, {"strange.py": OBSERVER + NEEDING})
    config = RunConfig()
    config.measure.profile_steps = 3
    assert slowed_steps(config) == 3
    config.measure.extra, config.train.seed = ["own"], 1
    assert slowed_steps(config) == 7
    check_measurements(config, 4)
    with pytest.raises(InputError, match="own needs four parts of a step, and has 1"):
        check_measurements(config, 1)
    config.train.seed = 0
    check_measurements(config, 1)
    assert slowed_steps(config) == 3


def test_a_broken_measurement_ends_a_run_before_its_folder_is_made(
    install: Install, small_cosmos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    install({plugins.MEASUREMENTS: {"own": "strange:M"}}, {"strange.py": "1 / 0"})
    words = ["train", "cosmoflow", "--preset", "smoke", "--data.root", str(small_cosmos), "--run-dir"]
    said = line(capsys, *words, str(tmp_path / "run"), "--measure.extra", "[own]")
    assert "measurement 'own' (strange:M of strange-parts) cannot be imported (ZeroDivisionError" in said
    assert not (tmp_path / "run").exists()
