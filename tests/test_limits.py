"""A test that takes too long of its own fails the run, however busy the machine is; a slow one may take longer."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.limits import LIMITS_S, own_s, processor_s

ROOT = Path(__file__).parents[1]
CONFTEST = """
import tests.limits
pytest_plugins = ["tests.limits"]
spent = [0.0]
tests.limits.processor_s = lambda: spent[0]
tests.limits.own_s = lambda clock_s, cpu_s, load, cores: cpu_s * tests.limits.PACE
"""
TESTS = """
import pytest
from conftest import spent
def spend(seconds): spent[0] += seconds
def test_quick(): spend(59)
def test_long(): spend(61)
@pytest.mark.slow
def test_marked(): spend(119)
@pytest.mark.slow
def test_longest(): spend(121)
@pytest.mark.long
def test_campaign(): spend(10_000)
"""


def tell(folder: Path, *words: str) -> tuple[int, str]:
    """Exit code and output of a run of the tests above."""
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_it.py").write_text(TESTS)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n    slow: of some time\n    long: of more\n")
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import pytest; sys.exit(pytest.main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "-q", "-p", "no:cacheprovider", "-c", "pytest.ini", *words]
    environ = {key: value for key, value in os.environ.items() if key != "PYTEST_ADDOPTS"}
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


@pytest.mark.parametrize("workers", [(), pytest.param(("-n", "1"), marks=pytest.mark.slow)])
def test_tests_over_their_limit_are_named_and_fail_where_asked(tmp_path: Path, workers: tuple[str, ...]) -> None:
    code, output = tell(tmp_path, "--limits", *workers)
    assert code == 1
    named = [line.split("::")[1].split(" took")[0] for line in output.splitlines() if " took " in line]
    assert sorted(named) == ["test_long", "test_longest"]
    assert "4 passed" in output


@pytest.mark.slow
@pytest.mark.parametrize("words", [("-k", "test_long"), ("--limits", "-k", "quick or marked")])
def test_others_pass(tmp_path: Path, words: tuple[str, ...]) -> None:
    assert tell(tmp_path, *words)[0] == 0


def test_a_core_that_is_shared_lengthens_the_clock_and_not_a_test() -> None:
    assert own_s(clock_s=80, cpu_s=9, load=16, cores=2) == 10
    assert own_s(clock_s=8, cpu_s=2, load=0.5, cores=2) == 8, "one that waits"
    assert own_s(clock_s=8, cpu_s=13, load=9, cores=2) == 13, "one of several processes"


def test_campaigns_are_asked_for_and_may_take_as_long_as_they_do(tmp_path: Path) -> None:
    code, output = tell(tmp_path, "--long", "--limits", "-k", "campaign or quick")
    assert (code, "2 passed" in output) == (0, True)


def test_time_of_processes_that_a_test_has_started_counts() -> None:
    before = processor_s()
    burn = "import time\nwhile time.process_time() < 0.3: pass"
    subprocess.run([sys.executable, "-c", burn], check=True)
    assert processor_s() - before >= 0.28, "the system counts in ticks of 10 ms"


HANGING = """
import subprocess
def test_first(): pass
def test_hanging(): subprocess.run(["sleep", "60"])
def test_next(): pass
"""


@pytest.mark.slow
def test_one_that_hangs_fails_says_where_it_stood_and_lets_the_others_run(tmp_path: Path) -> None:
    pytest.importorskip("pytest_timeout")
    (tmp_path / "test_hang.py").write_text(HANGING)
    code, output = tell(tmp_path, "--timeout", "2", "--timeout-method", "signal", "-n", "1", "test_hang.py")
    assert code == 1
    assert "1 failed, 2 passed" in output
    assert 'subprocess.run(["sleep", "60"])' in output
    assert "test_hanging - Failed: Timeout (>2.0s)" in output


@pytest.mark.slow
def test_campaigns_are_not_ended(tmp_path: Path) -> None:
    pytest.importorskip("pytest_timeout")
    marked = "import pytest, time\n@pytest.mark.long\ndef test_it(): time.sleep(1.5)\n"
    (tmp_path / "test_campaign.py").write_text(marked)
    assert tell(tmp_path, "--long", "--timeout", "1", "test_campaign.py")[0] == 0
    (tmp_path / "test_campaign.py").write_text(marked.replace("mark.long", "mark.slow"))
    assert tell(tmp_path, "--long", "--timeout", "1", "test_campaign.py")[0] == 1


def test_the_suite_has_such_a_bound(pytestconfig: pytest.Config) -> None:
    """Above what ``--limits`` lets a test take on cores that it shares; below the time of a whole run."""
    pytest.importorskip("pytest_timeout")
    assert 5 * LIMITS_S["slow"] <= float(pytestconfig.getini("timeout")) <= 1800
    assert pytestconfig.getini("timeout_method") == "signal"
