"""Plug-ins that are broken, doubled or badly made are refused in a line where they are asked for, and nowhere else."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import EntryPoints
from pathlib import Path

import pytest

from hpcbench import plugins
from hpcbench.application import find_application
from hpcbench.batch.schedulers import SCHEDULERS, faults, find_scheduler, usable_schedulers
from hpcbench.batch.site import find_site
from hpcbench.cli.main import main
from hpcbench.config.optimizers import optimizer_info, optimizer_names
from hpcbench.config.schema import OptimConfig
from hpcbench.installed_plugins import installed_plugins
from staging.errors import InputError
from tests.hpcbench.conftest import Install, line

RUN = ("train", "cosmoflow", "--preset", "smoke", "--data.root", "nowhere")
INFO = "from hpcbench.config.optimizers import OptimInfo\n"


def works(*words: str) -> bool:
    """Whether a command ends well."""
    return main(list(words)) == 0


def test_the_files_of_packages_are_read_once_for_all_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[str] = []
    monkeypatch.setattr(plugins, "entry_points", lambda: reads.append("all") or EntryPoints())
    plugins._all_entry_points.cache_clear()
    try:
        assert [plugins.names(group) for group in plugins.THINGS] == [[]] * len(plugins.THINGS)
        assert reads == ["all"]
    finally:
        plugins._all_entry_points.cache_clear()


@pytest.mark.parametrize(
    ("value", "text", "said"),
    [
        ("strange.gone:INFO", "", r"optimizer 'lion' (strange.gone:INFO of strange-parts) cannot be imported "
         r"(ModuleNotFoundError: No module named 'strange.gone'); mend or uninstall its package"),
        ("strange:INFO", "import nonesuch_library", "cannot be imported (ModuleNotFoundError: No module named "
         "'nonesuch_library'); mend"),
        ("strange:INFO", "1 / 0", "cannot be imported (ZeroDivisionError: division by zero); mend"),
        ("strange:INFO", "INFO = {}", "must be a OptimInfo, and is a dict; mend"),
        ("strange:INFO", INFO + "INFO = OptimInfo('tiger', '', 'a:B', {}, '')", "is called 'tiger' by its package"),
        ("strange:INFO", INFO + "INFO = OptimInfo('lion', '', 'a:B', {'bettas': 1}, '')",
         "has the option 'bettas', which is no setting of optim (did you mean 'betas'?)"),
    ],
)  # fmt: skip
def test_an_optimizer_that_cannot_be_used(
    install: Install, capsys: pytest.CaptureFixture[str], value: str, text: str, said: str
) -> None:
    install({plugins.OPTIMIZERS: {"lion": value}}, {"strange/__init__.py": text})
    assert said in line(capsys, *RUN, "--optim.name", "lion")
    assert said in line(capsys, "optimizers")
    assert optimizer_info("adam").builder == "torch.optim:Adam"
    assert works("sites")
    assert works("apps")
    (found,) = installed_plugins()
    assert said in found.wrong


@pytest.mark.parametrize(
    ("builder", "said"),
    [
        ("strange.gone:Lion", "optimizer 'lion' (strange.gone:Lion) cannot be imported (ModuleNotFoundError"),
        ("strange:Missing", "optimizer 'lion' (strange:Missing) cannot be imported (AttributeError"),
        ("strange:Lion", "optimizer 'lion' (strange:Lion) must be a torch.optim.Optimizer; mend its package"),
        ("strange:Narrow", "optimizer 'lion' (Narrow) does not take betas; mend its package"),
    ],
)
def test_an_optimizer_whose_class_cannot_be_used(install: Install, builder: str, said: str) -> None:
    from torch import nn, ones

    from hpcbench.optim.registry import create_optimizer

    text = (
        f"{INFO}import torch\nINFO = OptimInfo('lion', '', '{builder}', {{'betas': (0.9, 0.99)}}, '')\n"
        "class Lion: pass\n"
        "class Narrow(torch.optim.SGD):\n"
        "    def __init__(self, params, lr=1.0, weight_decay=0.0): super().__init__(params, lr)\n"
    )
    install({plugins.OPTIMIZERS: {"lion": "strange:INFO"}}, {"strange/__init__.py": text})
    with pytest.raises(InputError) as error:
        create_optimizer(OptimConfig(name="lion"), [{"params": [nn.Parameter(ones(2))]}], "cpu")
    assert said in str(error.value)


def test_an_optimizer_whose_class_hands_its_options_on_is_made(install: Install) -> None:
    from torch import nn, ones

    from hpcbench.optim.registry import create_optimizer

    text = (
        f"{INFO}import torch\nINFO = OptimInfo('wide', '', 'strange:Wide', {{}}, '')\n"
        "class Wide(torch.optim.SGD):\n"
        "    def __init__(self, params, **options): super().__init__(params, **options)\n"
    )
    install({plugins.OPTIMIZERS: {"wide": "strange:INFO"}}, {"strange/__init__.py": text})
    groups, config = [{"params": [nn.Parameter(ones(2))]}], OptimConfig(name="wide", lr=0.25)
    assert create_optimizer(config, groups, "cpu").param_groups[0]["lr"] == 0.25
    with pytest.raises(InputError, match=r"'wide' cannot be captured in a graph; set train.cuda_graph false"):
        create_optimizer(config, groups, "cpu", capturable=True)


def test_an_optimizer_that_takes_no_capturable_is_not_captured(install: Install) -> None:
    from torch import nn, ones

    from hpcbench.optim.registry import create_optimizer

    text = (
        f"{INFO}import torch\nINFO = OptimInfo('plain', '', 'strange:Plain', {{}}, '')\n"
        "class Plain(torch.optim.SGD):\n"
        "    def __init__(self, params, lr=1.0, weight_decay=0.0): super().__init__(params, lr)\n"
    )
    install({plugins.OPTIMIZERS: {"plain": "strange:INFO"}}, {"strange/__init__.py": text})
    groups, config = [{"params": [nn.Parameter(ones(2))]}], OptimConfig(name="plain")
    with pytest.raises(InputError, match=r"'plain' cannot be captured in a graph; set train.cuda_graph false"):
        create_optimizer(config, groups, "cpu", capturable=True)
    assert type(create_optimizer(config, groups, "cpu")).__name__ == "Plain"


def test_names_of_the_suite_and_names_that_two_packages_have(
    install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "1 / 0"  # nobody gets as far as that
    groups = {
        plugins.OPTIMIZERS: {"sgd": "strange:INFO", "lion": "strange:INFO"},
        plugins.SCHEDULERS: {"slurm": "strange"},
        plugins.APPLICATIONS: {"cosmoflow": "strange:application"},
        plugins.FIGURES: {"quality": "strange:quality"},
    }
    install(groups, {"strange/__init__.py": text})
    install({plugins.OPTIMIZERS: {"lion": "stranger:INFO"}}, {"stranger/__init__.py": text}, "stranger-parts")
    for name, said in (
        ("sgd", "optimizer 'sgd' (strange:INFO of strange-parts) has the name of one of hpcbench's own; rename"),
        ("lion", "optimizer 'lion' is registered by strange:INFO of strange-parts and stranger:INFO of stranger-parts"),
    ):
        with pytest.raises(InputError) as error:
            optimizer_info(name)
        assert said in str(error.value)
    assert optimizer_names().count("sgd") == optimizer_names().count("lion") == 1
    assert "application 'cosmoflow' is registered by " in line(capsys, *RUN)
    with pytest.raises(InputError, match=r"scheduler 'slurm' \(strange of strange-parts\) has the name of one of"):
        find_scheduler("slurm")
    assert list(usable_schedulers()) == list(SCHEDULERS.values())
    assert find_application("deepcam").package == "apps.deepcam"
    assert find_scheduler("pbs") is SCHEDULERS["pbs"]
    found = {(each.thing, each.name): each.wrong for each in installed_plugins()}
    assert "hpcbench's own" in found["figure", "quality"]
    assert all(found[thing, name] for thing, name in found if (thing, name) != ("application", "deepcam"))


def test_a_name_that_a_package_registers_twice_alike_is_one(install: Install) -> None:
    text = f"{INFO}INFO = OptimInfo('lion', '', 'a:B', {{}}, '')"
    install({plugins.OPTIMIZERS: {"lion": "strange:INFO"}}, {"strange/__init__.py": text})
    install({plugins.OPTIMIZERS: {"lion": "strange:INFO"}}, {}, "copied-parts")
    assert optimizer_info("lion").name == "lion"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "lacks TITLE, a str"),
        ("from hpcbench.batch.local import *\ndel find", "lacks the function find(mark, ask)"),
        ("from hpcbench.batch.local import *\ndef query(ids): return {}", "has another query than query(job_ids, ask)"),
        ("from hpcbench.batch.local import *\nKEEPS_ID = 'yes'", "has another KEEPS_ID, a bool"),
        ("1 / 0", "cannot be imported (ZeroDivisionError: division by zero)"),
    ],
)
def test_a_scheduler_that_does_not_meet_the_protocol(
    install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    text: str, said: str,
) -> None:  # fmt: skip
    install({plugins.SCHEDULERS: {"queue": "strange_queue"}}, {"strange_queue.py": text})
    monkeypatch.setenv("HPCBENCH_SITES", str(tmp_path))
    (tmp_path / "mine.yaml").write_text("title: mine\nscheduler: queue\nlauncher: mpich\nnode: {cores: 4}\n")
    job = ("--nodes", "1", "--time", "00:10:00", "--dry-run", "--no-stage", "--data.root", str(tmp_path))
    refused = line(capsys, "submit", "cosmoflow", "--site", "mine", *job)
    assert "scheduler 'queue' (strange_queue" in refused
    assert said in refused
    assert works("submit", "cosmoflow", "--site", "local", *job)
    assert [each.TITLE for each in usable_schedulers()] == [each.TITLE for each in SCHEDULERS.values()]


def test_the_schedulers_of_the_suite_meet_the_protocol() -> None:
    assert {name: faults(module) for name, module in SCHEDULERS.items()} == {name: [] for name in SCHEDULERS}


def test_an_unknown_scheduler_is_told_with_the_plug_ins(install: Install, tmp_path: Path) -> None:
    install({plugins.SCHEDULERS: {"queue": "strange_queue"}}, {"strange_queue.py": "1 / 0"})
    path = tmp_path / "mine.yaml"
    path.write_text("title: mine\nscheduler: queues\nlauncher: mpich\n")
    with pytest.raises(InputError, match=r"scheduler \(queues\) must be one of slurm, pbs, lsf, flux, local, queue"):
        find_site(str(path))
    with pytest.raises(InputError, match="unknown scheduler 'queues'; did you mean 'queue'"):
        find_scheduler("queues")


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("own", "1 / 0", "cannot be imported (ZeroDivisionError"),
        ("own", "draw = 3", "must be a function of a run"),
        ("own", "def draw(run): return run.nothing", "cannot draw "),
        ("own", "def draw(run): return 3", "must give a Figure or None, and gives a int"),
        ("../own", "def draw(run): return None", "must have a name of letters, digits, _ and -"),
        ("loss", "def draw(run): return None", "has the name of one of hpcbench's own"),
    ],
)
def test_a_figure_that_cannot_be_drawn(install: Install, tmp_path: Path, name: str, text: str, said: str) -> None:
    from types import SimpleNamespace
    from typing import Any

    from hpcbench.results.registered_figures import registered_figures

    run: Any = SimpleNamespace(folder=SimpleNamespace(path=tmp_path))
    assert registered_figures(run) == ([], [])
    install({plugins.FIGURES: {name: "strange:draw"}}, {"strange.py": text})
    figures, (problem,) = registered_figures(run)
    assert figures == []
    assert f"figure '{name}' " in problem
    assert said in problem


def test_a_run_has_its_page_without_a_figure_that_cannot_be_drawn(
    install: Install, small_cosmos: Path, tmp_path: Path
) -> None:
    install({plugins.FIGURES: {"own": "strange:draw"}}, {"strange.py": "1 / 0"})
    words = ["--data.root", str(small_cosmos), "--run-dir", str(tmp_path / "run"), "--train.max_epochs", "1"]
    assert main(["train", "cosmoflow", "--preset", "smoke", *words]) in (0, 3)
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert "figure &#39;own&#39; (strange:draw of strange-parts) cannot be imported (ZeroDivisionError" in page
    assert "Where did the time go?" in page


MACHINE = "title: {title}\nnodes: 1\nsources: [{{url: 'https://a.example', read: 2026-11-24, facts: [nodes]}}]\n"


def test_machines_of_a_package_that_is_not_there_or_has_a_name_of_the_suite(
    install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HPCBENCH_SITES", str(tmp_path / "own"))
    install({plugins.MACHINES: {"gone": "gone_machines"}}, {}, "gone-parts")
    gone = "machine files 'gone' (gone_machines of gone-parts) must name a package, a folder; mend or uninstall it"
    for words in (["sites"], ["sites", "--machines"], ["submit", "cosmoflow", "--site", "nonesuch", "--nodes", "1"]):
        assert gone in line(capsys, *words)
    assert find_site("perlmutter-gpu").node.gpus == 4
    assert works("optimizers")
    (found,) = installed_plugins()
    assert gone in found.wrong


def test_no_code_of_a_package_with_sites_is_run(
    install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HPCBENCH_SITES", str(tmp_path / "own"))
    profile = "title: mine\nscheduler: slurm\nlauncher: srun\nmachine: ours\n"
    files = {"lab/sites/here.yaml": profile, "lab/sites/machines/ours.yaml": MACHINE.format(title="ours")}
    code = {"lab/__init__.py": "raise RuntimeError('boom')", "lab/sites/__init__.py": "1 / 0"}
    install({plugins.MACHINES: {"lab": "lab.sites"}}, code | files)
    for words, said in ((["sites"], "here "), (["sites", "--machines"], "ours "), (["sites", "here"], "title: mine")):
        assert works(*words)
        assert said in capsys.readouterr().out
    (found,) = installed_plugins()
    assert found.wrong == ""
    assert "lab" not in sys.modules


def test_two_files_of_one_machine(
    install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    own = tmp_path / "own"
    monkeypatch.setenv("HPCBENCH_SITES", str(own))
    files = {f"lab_sites/machines/{name}.yaml": MACHINE.format(title="ours") for name in ("aurora", "ours")}
    install({plugins.MACHINES: {"lab": "lab_sites"}}, {"lab_sites/aurora.yaml": "1", **files})
    assert main(["sites", "--machines"]) == 2  # in the list of the others
    said = " ".join(capsys.readouterr().out.split())
    assert "fugaku" in said
    assert "machine 'aurora' has two files, " in said
    assert "rename that of the package, or uninstall it" in said
    assert "site 'aurora' has two files, " in line(capsys, "sites")
    assert find_site("polaris").machine is not None
    # the user's own comes before both
    (own / "machines").mkdir(parents=True)
    (own / "machines" / "aurora.yaml").write_text(MACHINE.format(title="mine"))
    assert works("sites", "--machines")


def test_help_and_commands_without_plug_ins_do_not_read_entry_points() -> None:
    code = "import sys\nfrom hpcbench.cli.main import main\nmain(['--help'])\n"
    listed = "print(__import__('hpcbench.plugins').plugins._all_entry_points.cache_info().misses, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code + listed], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "0"
