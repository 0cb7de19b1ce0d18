"""Hostile settings on the command line: one line on stderr, exit code 2, no traceback, and nothing is left behind."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest

from hpcbench.application import Application
from hpcbench.cli.arguments import Parser
from hpcbench.cli.commands import COMMANDS
from hpcbench.cli.main import main
from hpcbench.config.schema import RunConfig
from hpcbench.parallel import machine_limits
from hpcbench.parallel.machine_limits import check_machine, check_ranks
from staging.errors import InputError

Refused = Callable[..., str]


@pytest.fixture
def refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Refused:
    """What a command says that is refused with one line, and leaves no file where it ran."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HPCBENCH_SPAWNED", raising=False)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # of a package that is imported from there

    def run(*words: str) -> str:
        before = sorted(tmp_path.rglob("*"))
        assert main(words) == 2
        out, err = capsys.readouterr()
        assert not out
        assert err.count("\n") == 1
        assert err.startswith("hpcbench: error: ")
        assert len(err) < 700
        assert sorted(tmp_path.rglob("*")) == before
        return err.removeprefix("hpcbench: error: ").rstrip()

    return run


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--optim.lr", "nan"], "optim.lr (nan) must be a finite number; choose from 0 to 10000"),
        (["--optim.lr=-.inf"], "optim.lr (-inf) must be a finite number; choose from 0 to 10000"),
        (["--optim.lr", "1e999"], "optim.lr (inf) must be a finite number; choose from 0 to 10000"),
        (["--optim.lr", "null"], "optim.lr (null) must be a number"),
        (["--optim.betas", "[.nan, 0.5]", "--optim.name", "adam"], "optim.betas[0] (nan) must be a finite number; "),
        (
            ["--train.seed", "9223372036854775807"],
            "train.seed (9223372036854775807) must be at most 4294967295; choose from 0 to 4294967295",
        ),
        (["--seed", "99999999999"], "train.seed (99999999999) must be at most 4294967295"),
        (["--seed=-1"], "train.seed (-1) must be at least 0; choose from 0 to 4294967295"),
        (["--seed", "9" * 5000], "argument --seed: invalid int value: '9999"),
        (["--samples", "0"], "data.train_samples (0) must be at least 1"),
        (["--train.seed", "9" * 5000], "train.seed has 5000 characters and must have at most 4096; shorten it"),
        (["--parallel.threads", "100000"], "parallel.threads (100000) must be at most 1024; choose from 1 to 1024"),
        (["--parallel.devices", "100000"], "parallel.devices (100000) must be at most 1024"),
        (["--data.workers", "100000"], "data.workers (100000) must be at most 1024"),
        (["--staging.threads", "100000"], "staging.threads (100000) must be at most 256"),
        (["--schedule.milestones", "[" * 4000], "schedule.milestones ([[["),
        (["--schedule.milestones", "&a [*a]"], "schedule.milestones (&a [*a]) must be a list of whole numbers"),
        (["--schedule.milestones", "null"], "schedule.milestones (null) must be a list of whole numbers"),
        (["--data.root", "a\nb"], "data.root (a b) must not hold the control character '\\n'; take it out"),
        (["--data.root", "\udcff"], "data.root ( ) must be UTF-8; rename it"),
        (["--model.conv_layers", "100000"], "model.conv_layers (100000) must be at most 11; choose from 1 to 11"),
        (["--optim.name", "x" * 3000], "unknown optimizer optim.name 'xxxx"),
        (["--preset", "x" * 3000], "cosmoflow has no preset 'xxxx"),
        (["--train.sed", "1"], "the command line: unknown key 'train.sed'; did you mean 'train.seed'?"),
        (["--train.seed.x.y", "1"], "train.seed ({x: {y: 1}}) must be a whole number or null"),
        (["--" + "a." * 100_000 + "b", "1"], "the command line: 'a.a.a."),
        (["--..", "1"], "the command line: unknown key '..'"),
        (["--optim.", "1"], "the command line: unknown key 'optim.'; "),
        (["--nothing" + "x" * 5000], "hpcbench train: unknown argument '--nothingxxx"),
    ],
)
def test_hostile_settings_are_one_line(words: list[str], line: str, refused: Refused) -> None:
    for command in (["train"], ["train", "--list"], ["data", "verify"]):
        name = " ".join(word for word in command if not word.startswith("-"))
        assert refused(*command, "cosmoflow", *words).startswith(line.replace("hpcbench train", f"hpcbench {name}"))


def test_an_unknown_key_does_not_print_all_others(refused: Refused) -> None:
    line = refused("train", "cosmoflow", "--zzzz.qqqq", "1")
    assert line.endswith("is like it; `hpcbench train APP --list` shows all")
    assert "optim" not in line


@pytest.mark.parametrize("how", [[], ["--resume"], ["--resume-or-start"], ["--resume", "--list"]])
def test_a_run_folder_with_a_name_that_is_too_long(how: list[str], refused: Refused) -> None:
    assert refused("train", "cosmoflow", "--run-dir", "x" * 300, *how) == (
        f"run folder {'x' * 60}... cannot be looked at (File name too long); give another --run-dir"
    )


@pytest.mark.parametrize("command", ["demo", "train"])
def test_a_seed_is_refused_before_anything_is_made(command: str, refused: Refused) -> None:
    app = ["--app", "cosmoflow", "--preset", "smoke"] if command == "demo" else ["cosmoflow"]
    assert "(4294967296) must be at most 4294967295" in refused(command, *app, "--seed", "4294967296")


OPTIONS = {
    "stage": (("stage", "SRC", "DST"), ("--threads", "--piece-bytes", "--first", "--seed", "--simulated-nodes",
                                        "--probe-seconds")),
    "plan": (("plan", "cosmoflow", "--gpus-per-node", "1"), ("--nodes", "--gpus-per-node", "--global-batch-size")),
    "submit": (("submit", "cosmoflow", "--site", "local"), ("--nodes", "--ranks-per-node", "--cores-per-rank",
               "--gpus-per-rank", "--memory-gib", "--warn-s", "--attempts")),
    "convergence": (("study", "convergence", "cosmoflow"), ("--seeds", "--jobs", "--samples-per-s-per-rank",
                                                            "--parallel-efficiency", "--nodes", "--samples")),
    "strong": (("study", "strong", "cosmoflow"), ("--repeats", "--steps", "--global-batch-size", "--seed", "--runs",
                                                  "--jobs")),
    "throughput": (("study", "throughput", "cosmoflow"), ("--instance-nodes",)),
    "doctor": (("doctor",), ("--ranks", "--nodes", "--cores", "--gpus", "--local-gib")),
    "demo": (("demo",), ("--seed",)),
    "data": (("data", "verify", "cosmoflow"), ("--processes",)),
}  # fmt: skip
"""Commands with their options that take numbers."""
ANY_NUMBER = [(words, option) for words, options in OPTIONS.values() for option in options]


@pytest.mark.parametrize("text", ["-1", "nan", "inf", "1e400", "9" * 40, "9" * 5000, "", "0x10", "many"])
@pytest.mark.parametrize(("words", "option"), ANY_NUMBER, ids=[f"{w[0]} {o}" for w, o in ANY_NUMBER])
def test_numbers_of_commands_have_bounds(words: tuple[str, ...], option: str, text: str, refused: Refused) -> None:
    line = refused(*words, f"{option}={text}")
    assert line.startswith(f"{option} ({text[:60]}")
    assert "; choose from " in line


def test_every_option_that_takes_a_number_has_bounds() -> None:
    """No command parses a plain ``int`` or ``float``, but for what a setting of the same name bounds."""
    for name in COMMANDS:
        parser = Parser(name, "")
        import_module(f"hpcbench.cli.{name}").add_arguments(parser)
        for each in (parser, *parser.subcommands.values()):
            plain = {action.dest for action in each._actions if action.type in (int, float)}
            assert plain <= {"seed", "samples"}, each.prog


def test_200_ranks_on_two_cores_are_refused(refused: Refused, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_limits.os, "sched_getaffinity", lambda _: {0, 1})
    assert refused("train", "cosmoflow", "--parallel.devices", "200") == (
        "parallel.devices (200) must be at most 16 on this machine, where 2 cores are allowed; lower it, or start more "
        "ranks on more nodes with mpiexec"
    )


def test_ranks_need_memory() -> None:
    check_ranks(8, cores=2, free=2 * 2**30)
    check_ranks(1, cores=1, free=0)
    check_ranks(64, cores=8, free=64 * 2**30)
    with pytest.raises(InputError, match=r"\(8\) must be at most 5 on this machine, where 1.0 GiB of memory are free"):
        check_ranks(8, cores=2, free=2**30)
    with pytest.raises(InputError, match=r"\(17\) must be at most 16 on this machine, where 1 core is allowed"):
        check_ranks(17, cores=1, free=2**40)


def test_threads_and_readers_are_bounded_by_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    config = RunConfig()
    config.parallel.threads, config.data.workers = 64, 64
    monkeypatch.setattr(machine_limits.os, "cpu_count", lambda: 2)
    check_machine(config, starts_ranks=True)
    config.parallel.threads = 65
    with pytest.raises(InputError, match=r"parallel.threads \(65\) must be at most 64 on this machine of 2 cores"):
        check_machine(config, starts_ranks=True)
    monkeypatch.setattr(machine_limits.os, "cpu_count", lambda: 128)
    check_machine(config, starts_ranks=True)
    config.data.workers = 1024
    check_machine(config, starts_ranks=True)


@pytest.mark.parametrize(
    ("value", "change"),
    [("100000", "lower it"), ("65,2", "lower it"), ("9" * 5000, "lower it"), ("0", "correct it"), ("abc", "correct it"),
     ("-1", "correct it"), ("1.5", "correct it")],
)  # fmt: skip
def test_threads_of_openmp_are_bounded_by_the_machine(
    value: str, change: str, refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine_limits.os, "cpu_count", lambda: 2)
    monkeypatch.setenv("OMP_NUM_THREADS", value)
    shown = value if len(value) <= 60 else "9" * 60 + "..."
    assert refused("train", "cosmoflow", "--parallel.threads", "1") == (
        f"OMP_NUM_THREADS ({shown}) must be a whole number from 1 to 64 on this machine of 2 cores; {change}, or unset "
        "it"
    )


@pytest.mark.parametrize("value", ["", " ", "64", " 8 ", "4,2", "0001"])
def test_threads_of_openmp_that_a_machine_has(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_limits.os, "cpu_count", lambda: 2)
    monkeypatch.setenv("OMP_NUM_THREADS", value)
    check_machine(RunConfig(), starts_ranks=True)


def test_a_started_rank_does_not_count_its_neighbours_again(monkeypatch: pytest.MonkeyPatch) -> None:
    config = RunConfig()
    config.parallel.devices = 200
    monkeypatch.setattr(machine_limits.os, "sched_getaffinity", lambda _: {0})
    check_machine(config, starts_ranks=False)
    with pytest.raises(InputError, match="must be at most 16"):
        check_machine(config, starts_ranks=True)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("train: {seed: 9223372036854775807}", "train.seed (9223372036854775807) must be at most 4294967295"),
        ("model: {width: .nan}", "model[width] (nan) must be a finite number"),
        ("train: {target: &a 1}", "line 1: '&a' is an alias or anchor; write the values out"),
        ("extends: " + "[" * 5000, "line 1: more than 20 levels within one another; take some out"),
    ],
)
def test_a_preset_of_an_application_of_ones_own(
    text: str, line: str, refused: Refused, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine" / "configs").mkdir(parents=True)
    (tmp_path / "mine" / "__init__.py").touch()
    (tmp_path / "mine" / "configs" / "smoke.yaml").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    monkeypatch.setattr("hpcbench.cli.train.find_application", lambda _: Application("mine", "none", "mine", "mine"))
    assert line in refused("train", "mine")
