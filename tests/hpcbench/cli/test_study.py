"""Commands with subcommands (`hpcbench study`, `data`, `app`): each has its own options, help and errors."""

from __future__ import annotations

import re

import pytest

from hpcbench.cli import app, data, study
from hpcbench.cli.arguments import Parser
from hpcbench.cli.main import main
from tests.command_lines import in_lines, refusal

GROUPS = {"study": study, "data": data, "app": app}
EVERY = [(group, each.name) for group, module in GROUPS.items() for each in module.SUBCOMMANDS]


def explain(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """What ``--help`` prints."""
    with pytest.raises(SystemExit) as ended:
        main([*words, "--help"])
    assert ended.value.code == 0
    return capsys.readouterr().out


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The one line of an error, without its beginning."""
    assert main(list(words)) == 2
    line = capsys.readouterr().err
    assert line.count("\n") == 1
    return line.removeprefix("hpcbench: error: ").rstrip("\n")


def options_of(group: str, name: str) -> set[str]:
    """The options of a subcommand."""
    parser = Parser(f"hpcbench {group}", "")
    GROUPS[group].add_arguments(parser)
    return set(parser.subcommands[name].options())


@pytest.mark.parametrize("group", GROUPS)
def test_the_help_of_a_group_lists_its_commands_in_a_line_each(
    group: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text = explain(capsys, group)
    assert text.startswith(f"usage: hpcbench {group} COMMAND [options]\n")
    for each in GROUPS[group].SUBCOMMANDS:
        assert re.search(rf"^  {each.name} +{re.escape(each.help)}$", text, re.MULTILINE)
    assert len(text.splitlines()) <= 35


@pytest.mark.parametrize(("group", "name"), EVERY)
def test_the_help_of_a_command_has_its_own_options_and_examples_that_parse(
    group: str, name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    text = explain(capsys, group, name)
    assert text.startswith(f"usage: hpcbench {group} {name} ")
    assert max(map(len, text.splitlines())) <= 100
    assert set(re.findall(r"^  (?:-h, )?(--[a-z-]+)", text, re.MULTILINE)) == options_of(group, name) - {"-h"}
    description = next(each.description for each in GROUPS[group].SUBCOMMANDS if each.name == name)
    examples = list(in_lines("\n".join(line.strip() for line in description.splitlines() if line.startswith("  "))))
    assert [group, name] in [words[:2] for words in examples]
    assert [refusal(words) for words in examples] == [None] * len(examples)


def test_the_help_of_resume_says_how_many_runs_it_makes_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    said = {name: " ".join(explain(capsys, "study", name).split()) for name in ("resume", "strong")}
    every = "one for each accelerator, else for every two cores, or as many as its parallel.threads"
    assert f"(default: 1; of a convergence study {every})" in said["resume"]
    assert "runs here (default: 1), or jobs" in said["strong"]


STRONG = ["strong", "cosmoflow", "--nodes", "1", "--study-dir", "s"]
CONVERGENCE = ["convergence", "cosmoflow", "--batch-sizes", "4", "--optimizers", "sgd", "--study-dir", "s"]
OF_CONVERGENCE = ("--batch-sizes 4", "--optimizers sgd", "--seeds 1", "--placements shard", "--borrow 4:8",
                  "--lr sgd=1", "--lr-rule none", "--lr-search 1", "--lr-search-seeds 2", "--lr-search-widen 1",
                  "--with sgd:optim.momentum=0.5",
                  "--samples-per-s-per-rank 9", "--parallel-efficiency 0.5", "--no-estimate", "--keep",
                  "--runs-per-job 2")  # fmt: skip
OF_SPEED = ("--repeats 1", "--steps 9", "--vary tier=node", "--no-stage", "--seed 1", "--ranks-per-node 2")
OTHERS = [
    *((STRONG, option, "convergence") for option in OF_CONVERGENCE if option != "--keep"),
    (STRONG, "--keep", "convergence, gains"), (STRONG, "--only bf16", "gains"), (STRONG, "--without bf16", "gains"),
    *((CONVERGENCE, option, "strong, weak, throughput") for option in OF_SPEED[2:]),
    *((CONVERGENCE, option, "strong, weak, throughput, gains") for option in OF_SPEED[:2]),
    *((CONVERGENCE, option, "strong, weak, throughput, resume, report") for option in ("--convergence d", "--runs 3")),
    (CONVERGENCE, "--global-batch-size 8", "strong"), (STRONG, "--instance-nodes 1", "throughput"),
    (["weak", *STRONG[1:]], "--global-batch-size=8", "strong"), (["status", "s"], "--out=x", "collect"),
    (["report"], "--retry", "convergence, strong, weak, throughput, gains"),
    (["resume", "s"], "--retry", "convergence, strong, weak, throughput, gains"),
]  # fmt: skip


@pytest.mark.parametrize(("words", "option", "owners"), OTHERS)
def test_an_option_of_another_command_is_refused_with_its_name(
    words: list[str], option: str, owners: str, capsys: pytest.CaptureFixture[str]
) -> None:
    name = re.split("[ =]", option)[0]
    assert refused(capsys, "study", *words, *option.split()) == (
        f"hpcbench study {words[0]} has no {name}; it is an option of hpcbench study {owners}"
    )


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("study", "hpcbench study needs a command: convergence, strong, weak, throughput, gains, status, resume, "
                  "cancel, report, collect, execute, published; see hpcbench study --help"),
        ("study stong cosmoflow", "hpcbench study: unknown command 'stong'; did you mean 'strong'?"),
        ("study cosmoflow --nodes 1", "hpcbench study: unknown command 'cosmoflow'; known: convergence, strong, weak, "
                                      "throughput, gains, status, resume, cancel, report, collect, execute, "
                                      "published"),
        ("study --preset smoke strong cosmoflow", "hpcbench study: name the command first: hpcbench study strong ..."),
        ("study cosmoflow weak --nodes 1", "hpcbench study: name the command first: hpcbench study weak ..."),
        ("study --preset smoke", "hpcbench study needs a command: convergence, "),
        ("study strong cosmoflow --presett laptop", "hpcbench study strong: unknown argument '--presett'; did you mean "
                                                    "'--preset'?"),
        ("study strong cosmoflow --nodes 1 --study-dir s deepcam", "hpcbench study strong: unknown argument 'deepcam'; "
                                                                   "see hpcbench study strong --help"),
        ("study status s --optim.lr 3", "hpcbench study status takes no dotted settings; leave out --optim.lr"),
        ("data inspect cosmoflow x --preset smoke", "hpcbench data inspect has no --preset; it is an option of "
                                                    "hpcbench data simulate, verify, split"),
        ("data simulate cosmoflow --out x y", "hpcbench data simulate: unknown argument 'y'; see hpcbench data sim"),
        ("app mew waves", "hpcbench app: unknown command 'mew'; did you mean 'new'?"),
    ],
)  # fmt: skip
def test_bad_words_are_one_line(words: str, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert refused(capsys, *words.split()).startswith(line)


def test_settings_stand_wherever_they_like() -> None:
    parser = Parser("hpcbench study", "")
    study.add_arguments(parser)
    line = "--train.max_epochs 3 strong --nodes 1,2 --train.compile cosmoflow --study-dir s --optim.lr=0.1"
    args, settings = parser.parse_with_settings(line.split())
    assert (args.subcommand.name, args.app, args.nodes) == ("strong", "cosmoflow", "1,2")
    assert settings == {"train.max_epochs": "3", "train.compile": "true", "optim.lr": "0.1"}
