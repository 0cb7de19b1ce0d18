"""Tasks of developers, in the active environment: ``nox -s lint``. CONTRIBUTING.md says how to set one up."""

from __future__ import annotations

import nox

nox.options.sessions = ["lint", "test"]

EXCHANGE = ("llnl-hatchet", "llnl-thicket", "extrap", "numpy<2", "pandas<3")
"""Packages that read exports; they pin an older numpy and pandas than the suite takes."""
EXCHANGE_TESTS = ("pytest", "pytest-xdist", "pytest-timeout", "hypothesis", "pyyaml")


@nox.session(python=False)
def lint(session: nox.Session) -> None:
    """Check style, format and types."""
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("mypy")


@nox.session(python=False)
def test(session: nox.Session) -> None:
    """Run the default tests, or what is given: nox -s test -- tests/staging."""
    session.run("python", "-m", "pytest", *session.posargs)


@nox.session(python=False)
def test_all(session: nox.Session) -> None:
    """Run all tests, the slow ones, too."""
    session.run("python", "-m", "pytest", "-m", "", *session.posargs)


@nox.session(venv_backend="venv")
def exchange(session: nox.Session) -> None:
    """Read exports with Hatchet, Thicket and Extra-P, in an environment of their own; Python 3.11 or 3.12, no torch."""
    session.install(*EXCHANGE, *EXCHANGE_TESTS)
    tests = "tests/hpcbench/characterisation/test_exports.py"
    session.run("python", "-m", "pytest", "-n0", "-m", "", tests, *session.posargs)


@nox.session(python=False)
def coverage(session: nox.Session) -> None:
    """Show how much of what all tests cover the default tests cover; quicker on Python 3.12 or newer."""
    data = {name: f".coverage-{name}" for name in ("default", "slow")}
    for (name, file), marks in zip(data.items(), ("not slow", "slow"), strict=True):
        session.log(f"{name} tests")
        variables = {"COVERAGE_FILE": file, "COVERAGE_CORE": "sysmon"}
        session.run("coverage", "run", "-m", "pytest", "-m", marks, *session.posargs, env=variables)
        session.run("coverage", "combine", env=variables, silent=True)
    session.run("python", "tests/covered_lines.py", *data.values())


@nox.session(python=False)
def docs(session: nox.Session) -> None:
    """Write the documentation site to build/site; a broken link inside it is an error."""
    session.run("mkdocs", "build", "--strict", *session.posargs, env={"NO_MKDOCS_2_WARNING": "1"})


@nox.session(python=False)
def bench(session: nox.Session) -> None:
    """Run a benchmark by its name, with its options: nox -s bench -- loop."""
    if not session.posargs:
        session.error("which one? nox -s bench -- loop; benchmarks/README.md lists them")
    name, *options = session.posargs
    session.run("python", f"benchmarks/{name.removesuffix('.py')}.py", *options)
