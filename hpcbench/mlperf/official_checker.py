"""The official compliance checker, made fast enough for whole rounds: its own code, on the lines that it would check.

``mlperf_logging`` reads and parses its rule files again for each log, and compiles each test for each line. Here a
second copy of its module ``mlp_compliance`` caches both. The copy has a queue of its own, writes nothing, and opens no
rule file outside the package, even if a log names one.
"""

from __future__ import annotations

import builtins
import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any


class Silent:
    """Replaces the module ``logging``, which would add a handler to the process."""

    def info(self, *words: object) -> None:
        """Do nothing."""

    warning = error = info


class RuleFiles:
    """Replaces the module ``yaml``, and ``open``, so that each rule file is read once."""

    BaseLoader = None

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self.parsed: dict[str, Any] = {}

    def open(self, name: str) -> AbstractContextManager[str]:
        """Open a rule file of the package. Raises ``FileNotFoundError`` for a file outside the package."""
        if name not in self.parsed:
            import yaml

            path = Path(name).resolve()
            if not path.is_relative_to(self.folder):
                raise FileNotFoundError(f"no rules in {name}")
            self.parsed[name] = yaml.load(path.read_text(), Loader=yaml.BaseLoader)  # noqa: S506 (makes only text)
        return nullcontext(name)

    def load(self, name: str, Loader: object) -> Any:  # noqa: N803 (the name of PyYAML's argument)
        """Return the rules of an open file."""
        return self.parsed[name]


class CollectedMessages(logging.Handler):
    """Keeps messages that are logged as errors or warnings."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a message."""
        self.said.append(record.getMessage())


@contextmanager
def quiet_logging() -> Iterator[list[str]]:
    """Collect what official functions log to the root logger within the block; this prints nothing, adds no handler."""
    root, handler = logging.getLogger(), CollectedMessages()
    root.addHandler(handler)
    try:
        yield handler.said
    finally:
        root.removeHandler(handler)


@cache
def compiled(code: str, mode: str) -> CodeType:
    """Compile a test, or a statement, of a rule file."""
    return compile(code, "<rule>", mode)


def evaluate(code: str, state: dict[str, Any], local: dict[str, Any] | None = None) -> Any:
    """Evaluate a test, in place of ``eval``."""
    return builtins.eval(compiled(code, "eval"), state, local)  # noqa: S307 (of the package's own rule files)


def execute(code: str, state: dict[str, Any], local: dict[str, Any] | None = None) -> None:
    """Execute a statement, in place of ``exec``."""
    builtins.exec(compiled(code, "exec"), state, local)  # noqa: S102 (as above)


@cache
def official_module() -> ModuleType:
    """Return the copy of ``mlp_compliance``."""
    from mlperf_logging.compliance_checker import mlp_compliance

    package, path = mlp_compliance.__package__, Path(mlp_compliance.__file__)
    spec = spec_from_file_location(f"{package}.mlp_compliance_for_hpcbench", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)

    files = RuleFiles(path.parent)
    replaced = {"eval": evaluate, "exec": execute, "open": files.open, "yaml": files, "logging": Silent()}
    for name, value in replaced.items():
        setattr(module, name, value)
    return module


@cache
def keys_of_rules(ruleset: str) -> frozenset[str]:
    """Return the keys that the rules name; the official checker skips lines with other keys."""
    folder = Path(official_module().__file__ or "").parent / f"hpc_{ruleset}"
    named = re.compile(r"^\s*NAME:\s*(\S+)\s*$", re.MULTILINE)
    return frozenset(key for path in sorted(folder.glob("*.yaml")) for key in named.findall(path.read_text()))


def messages_of(lines: Sequence[Any], broken: Sequence[str], ruleset: str, common_only: bool = False) -> list[str]:
    """Return the checker's messages on the lines of a log (its ``LogLine``); empty if it accepts the log.

    ``broken`` are lines that its parser rejects. Raises what the checker raises: it crashes on some logs.
    """
    module = official_module()
    module.enqueued_configs.clear()
    checker = module.make_checker("hpc", ruleset, quiet=True, werror=False)
    for line in broken:
        checker.put_message(f"line cannot be parsed: {line}")
    common = f"hpc_{ruleset}/common.yaml"
    try:
        if common_only:
            checker.configured_checks(lines, str(Path(module.__file__ or "").parent / common))
        else:
            checker.check_loglines(lines, common)
    finally:
        module.enqueued_configs.clear()
    return [*checker.overwritable.values(), *checker.not_overwritable]
