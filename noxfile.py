"""Tasks of developers, in the active environment: ``nox -s lint``. CONTRIBUTING.md says how to set one up."""

from __future__ import annotations

import nox

nox.options.sessions = ["lint", "test"]


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


@nox.session(python=False)
def bench(session: nox.Session) -> None:
    """Run a benchmark by its name, with its options: nox -s bench -- loop."""
    if not session.posargs:
        session.error("which one? nox -s bench -- loop; benchmarks/README.md lists them")
    name, *options = session.posargs
    session.run("python", f"benchmarks/{name.removesuffix('.py')}.py", *options)
