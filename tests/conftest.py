"""An environment of its own for packages that tests write: it sees what is installed here, and not the reverse."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import venv
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from tests.fork_server import forking_programs
from tests.open_mpi import OpenMpi, install_open_mpi
from tests.undrawn import empty_svg

SEED = "HPCBENCH_SEED"

pytest_plugins = ["tests.limits"]

# How fast examples come says how busy the machine is, and nothing of the code.
hypothesis.settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("any machine")

# Several test processes share the machine; more threads each would only get into one another's way. Where a command
# sets its threads itself, one that waits for another sleeps: spinning doubles what training takes on busy cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")


@pytest.hookimpl(optionalhook=True)  # without pytest-xdist, nobody knows of it
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Two processes for each core: tests wait for much of their time."""
    return 2 * len(os.sched_getaffinity(0))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With ``-m slow``, leave out files that do not know the word: each process of the tests would import them all."""
    if config.option.markexpr != "slow" or not collection_path.match("test_*.py"):
        return None
    return True if "slow" not in collection_path.read_text(encoding="utf-8") else None


def pytest_configure() -> None:
    """One seed for all tests that draw, in all their processes; ``HPCBENCH_SEED`` says which."""
    os.environ.setdefault(SEED, str(random.randrange(1 << 30)))


def pytest_report_header() -> str:
    """How to draw the same again."""
    return f"draws: {SEED}={os.environ[SEED]}"


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """The same below failed tests: with ``-q`` there is no header."""
    if any(terminalreporter.stats.get(outcome) for outcome in ("failed", "error")):
        terminalreporter.line(pytest_report_header())


@pytest.fixture(autouse=True)
def signal_handlers() -> Iterator[None]:
    """Leave this process's handlers as they were: a run that a signal ends keeps its own until its process ends."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)}
    yield
    for number, handler in before.items():
        if handler is not None and signal.getsignal(number) is not handler:
            signal.signal(number, handler)


class Environment:
    """A virtual environment below ``folder`` on top of the one that runs the tests, so that nothing is downloaded."""

    def __init__(self, folder: Path) -> None:
        venv.create(folder, with_pip=False)
        self.python = folder / "bin" / "python"
        own = folder / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
        below = sorted({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")})
        lines = [f"import site; site.addsitedir({path!r})" for path in below]
        (own / "below.pth").write_text("\n".join(lines) + "\n", encoding="utf-8")
        self.program = self.python
        """What ``hpcbench`` runs with, which may be a program whose processes are forked."""

    def run(self, *words: object, cwd: Path, python: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Run Python with ``words`` as its arguments, on one thread; output is kept, the exit code not judged.

        ``python`` is another program that is one of this environment.
        """
        variables = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PYTHONHOME")}
        command = [str(python or self.python), *map(str, words)]
        return subprocess.run(
            command, cwd=cwd, env=variables | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True, check=False
        )

    def hpcbench(self, *words: object, cwd: Path) -> str:
        """Run a command of the suite, which must end with exit code 0; returns its output."""
        return self.succeed("-m", "hpcbench", *words, cwd=cwd, python=self.program)

    def install(self, *words: object, cwd: Path) -> None:
        """``pip install`` without the network."""
        offline = ("--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check")
        self.succeed("-m", "pip", "install", *offline, *words, cwd=cwd)

    def succeed(self, *words: object, cwd: Path, python: Path | None = None) -> str:
        """Run Python, which must end with exit code 0; returns its output."""
        done = self.run(*words, cwd=cwd, python=python)
        assert done.returncode == 0, f"{words} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
        return done.stdout


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    """An empty environment to install packages into; skips where pip or setuptools is missing."""
    return new_environment(tmp_path / "environment")


@pytest.fixture(scope="module")
def shared_environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """The same for all tests of a module."""
    return new_environment(tmp_path_factory.mktemp("shared") / "environment")


def new_environment(folder: Path) -> Environment:
    """An empty environment; skips where pip or setuptools is missing."""
    for needed in ("pip", "setuptools"):
        if find_spec(needed) is None:
            pytest.skip(f"needs {needed} to build and install a package")
    return Environment(folder)


@pytest.fixture(scope="module")
def undrawn() -> Iterator[None]:
    """Pages have all their words, and of each figure but the frame: drawing takes longer than a short run."""
    from hpcbench.results import style

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(style, "svg", empty_svg)
        yield


@pytest.fixture(scope="session")
def forking_folder() -> Iterator[Path]:
    """The folder of programs whose processes are forked; see ``tests/fork_server``."""
    if not sys.platform.startswith("linux"):
        pytest.skip("processes are forked as Linux can")
    with tempfile.TemporaryDirectory(prefix="fork-") as folder, forking_programs(Path(folder)) as found:
        yield found


@pytest.fixture(scope="module")
def forked_processes(forking_folder: Path) -> Iterator[None]:
    """In a module, Python (``sys.executable``) and ``hpcbench`` are those programs: processes start in no time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "executable", str(forking_folder / "python"))
        patch.setenv("PATH", str(forking_folder), prepend=os.pathsep)
        yield


@pytest.fixture(scope="session")
def mpiexec() -> str:
    """The launcher of the MPI library that mpi4py finds; skips where one of the two is missing."""
    found = shutil.which("mpiexec", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
    probe = [sys.executable, "-c", "from mpi4py import MPI"]
    if found is None or subprocess.run(probe, capture_output=True, check=False).returncode != 0:
        pytest.skip("mpiexec or the MPI library of mpi4py is missing")
    return found


@pytest.fixture(scope="session")
def open_mpi(tmp_path_factory: pytest.TempPathFactory) -> OpenMpi:
    """Open MPI, beside the MPI library that ``mpiexec`` belongs to; skips where it cannot be installed."""
    return install_open_mpi(tmp_path_factory.mktemp("open-mpi"))
