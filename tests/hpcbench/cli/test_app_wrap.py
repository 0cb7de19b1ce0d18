"""`hpcbench app wrap`: what it writes, and what it refuses in one line."""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from torch import nn

from hpcbench.cli.main import main
from hpcbench.config.schema import RunConfig
from hpcbench.skeleton.wrap import folder_argument, optimizer_settings
from hpcbench.skeleton.wrapped import OWN_NAMES, number, preset, render_wrapped
from hpcbench.skeleton.wrapping import Found, Wrapping
from staging.errors import InputError

SOURCE = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, width=1):
        super().__init__()

class Needy(nn.Module):
    def __init__(self, width):
        super().__init__()

class Lazy(nn.Module):
    def __init__(self):
        super().__init__()
        self.dense = nn.LazyLinear(4)

def sets(folder): ...
def loss(output, target): ...
number = 3
"""
PLAIN = ["--module", "my_lab:Net", "--dataset", "my_lab:sets", "--loss", "my_lab:loss"]


@pytest.fixture(autouse=True)
def my_lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module of the reader's."""
    (tmp_path / "my_lab.py").write_text(SOURCE, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)


def test_a_plain_module_is_named_in_a_package_whose_help_imports_no_torch(tmp_path: Path) -> None:
    settings = ["--metric", "my_lab:loss", "--target", "0.5", "--keys", "x", "y"]
    assert main(["app", "wrap", "mine", "--out", str(tmp_path), *PLAIN, *settings]) == 0
    source = tmp_path / "mine" / "src" / "mine"
    assert 'PlainTask(my_lab.loss, metric=my_lab.loss, better="lower", name="loss")' in (source / "task.py").read_text()
    assert 'KEYS = ("x", "y")' in (source / "data.py").read_text()
    assert "return my_lab.Net()" in (source / "model.py").read_text()
    assert yaml.safe_load((source / "configs" / "smoke.yaml").read_text()) == {
        "optim": {"name": "adam", "lr": 0.001},
        "train": {"local_batch_size": 32, "max_epochs": 20, "target": 0.5},
    }
    assert "torch" not in (source / "__init__.py").read_text().replace("Imports no torch", "")
    assert 'mine = "mine:application"' in (tmp_path / "mine" / "pyproject.toml").read_text()


@pytest.mark.parametrize(
    ("folder", "optimizer"), [(None, {"name": "sgd", "lr": 1e-8}), ("root", {"betas": [0.9, 0.99]})]
)
def test_files_of_a_lightning_module_are_python_and_its_numbers_numbers(folder: Any, optimizer: Any) -> None:
    asked = Wrapping("a.b:Net", data="a.b:Data", metrics=("val_f1", "val_loss"), better="higher")
    written = render_wrapped("mine", asked, Found(True, optimizer, "of configure_optimizers", folder))
    for path, text in written.items():
        if path.endswith(".py"):
            ast.parse(text, path)
    assert yaml.safe_load(written["src/mine/configs/smoke.yaml"])["optim"] == optimizer
    assert 'METRICS = ("val_f1", "val_loss")' in written["src/mine/task.py"]
    assert ("a.b.Data(root=folder)" if folder else "a.b.Data()") in written["src/mine/data.py"]
    assert ("files_nowhere(config)" in written["src/mine/data.py"]) == (folder is None)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--module", "my_lab:Net"], "name the data with either --data, a LightningDataModule, or --dataset"),
        ([*PLAIN, "--data", "my_lab:sets"], "name the data with either"),
        (PLAIN[:4], "my_lab:Net is no LightningModule, so it needs a loss: --loss package.module:function"),
        ([*PLAIN, "--module", "my_lab:Other"], "my_lab has no class or function 'Other'; mend the name"),
        ([*PLAIN, "--module", "my_lab:number"], "my_lab has no class or function 'number'"),
        ([*PLAIN, "--module", "my_lab"], "--module (my_lab) must be package.module:name"),
        ([*PLAIN, "--module", "no_lab:Net"], "no_lab cannot be imported (ModuleNotFoundError"),
        ([*PLAIN, "--module", "my_lab:Needy"], "cannot be made without arguments (TypeError"),
        (
            [*PLAIN, "--module", "my_lab:Lazy"],
            "(my_lab:Lazy): 'dense.weight' has no size before a first batch; give its",
        ),
        ([*PLAIN, "--module", "my_lab:dict"], "my_lab has no class or function 'dict'"),
        ([*PLAIN, "--loss", "my_lab:none"], "--loss (my_lab:none): my_lab has no class or function"),
        ([*PLAIN, "--loss", "torch.nn:MSELoss"], "--loss (torch.nn:MSELoss) is a class; name a function of output and"),
        ([*PLAIN, "--metric", "my_lab:Net"], "--metric (my_lab:Net) is a class; name a function of output and target"),
        ([*PLAIN, "--metric", "my_lab:loss", "--metric", "my_lab:loss"], "--metric is given 2 times; a plain module"),
    ],
)
def test_what_cannot_be_wrapped_is_one_line_and_leaves_nothing(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["app", "wrap", "mine", "--out", str(tmp_path / "out"), *words]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_the_folder_of_a_data_module_is_found_by_name() -> None:
    def needs_more(data_dir: str, size: int) -> None: ...

    assert folder_argument(lambda batch_size=2, data_dir="data": None) == "data_dir"
    assert folder_argument(lambda **settings: None) is None
    with pytest.raises(InputError, match="the data module needs the argument 'size'; give a function of the folder"):
        folder_argument(needs_more)


def test_the_task_of_a_lightning_module_refuses_settings_of_a_run() -> None:
    asked = Wrapping("a.b:Net", data="a.b:Data", metrics=("val_loss",))
    written = render_wrapped("mine", asked, Found(True, {}, "a start", "root"))
    names: dict[str, Any] = {}
    exec(compile(written["src/mine/task.py"], "task.py", "exec"), names)
    config = RunConfig()
    assert names["build_task"](config).metric == "val_loss"
    config.parallel.shard_states = True
    with pytest.raises(InputError, match=r"parallel\.shard_states \(true\) needs passes"):
        names["build_task"](config)


@pytest.mark.parametrize("value", [1e-15, 2.5e-300, 1.23456789012345e-5, 0.1, 3.0, 1e20, True, [0.9, 1e-13]])
def test_numbers_of_a_preset_keep_their_digits(value: Any) -> None:
    found = yaml.safe_load(f"key: {number(value)}")["key"]
    assert found == value
    assert type(found) is type(value)


def test_a_small_target_stays_a_number() -> None:
    asked = Wrapping("a.b:Net", data="a.b:Data", target=1e-5)
    assert yaml.safe_load(preset(asked, Found(True, {}, "a start", "root")))["train"]["target"] == 1e-5


class Scheduled:
    """A module whose ``configure_optimizers`` makes what ``make`` returns for its parameters."""

    def __init__(self, make: Any) -> None:
        self.make = make

    def configure_optimizers(self) -> Any:
        """Optimizer and schedule."""
        return self.make([nn.Parameter(torch.zeros(1))])


def test_the_rate_of_a_preset_is_the_peak_of_the_schedule_rather_than_its_start() -> None:
    def from_zero(parameters: Any) -> Any:
        optimizer = torch.optim.AdamW(parameters, lr=0.02, amsgrad=True)
        return [optimizer], [torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: epoch / 5)]

    def cycle(parameters: Any) -> Any:
        optimizer = torch.optim.SGD(parameters, lr=0.01, momentum=0.9, dampening=0.1, maximize=True)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.5, total_steps=10, cycle_momentum=False)
        return {"optimizer": optimizer, "lr_scheduler": schedule}

    settings, remark = optimizer_settings(Scheduled(from_zero))
    assert settings == {"name": "adamw", "lr": 0.02, "weight_decay": 0.01, "betas": [0.9, 0.999], "eps": 1e-8}
    assert remark == "of configure_optimizers, without its schedule, amsgrad"
    settings, remark = optimizer_settings(Scheduled(cycle))
    assert (settings["lr"], settings["momentum"]) == (0.5, 0.9)
    assert remark == "of configure_optimizers, without its schedule, dampening, maximize"
    settings, remark = optimizer_settings(Scheduled(lambda parameters: torch.optim.SGD(parameters, lr=0.3)))
    assert settings["lr"] == 0.3
    assert remark == "of configure_optimizers, without its schedule"


@pytest.mark.parametrize("value", ["nan", "-inf", "2e9", "high"])
def test_a_target_is_a_number_that_a_setting_takes(
    value: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["app", "wrap", "mine", "--out", str(tmp_path / "out"), "--module", "a:B", "--data", "a:C"]
    assert main([*words, f"--target={value}"]) == 2
    assert f"({value}) must be a number from -1e+09 to 1e+09" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


DATA = """
from torch.utils.data import DataLoader, TensorDataset
import torch

class Data:
    def __init__(self, root): self.root = root
    def setup(self, stage): self.set = TensorDataset(torch.ones(2, 1), torch.ones(2))
    def train_dataloader(self): return DataLoader(self.set)

def make(folder): return ([(1.0, 2.0)], [(3.0, 4.0)])
def loss(output, target): return output.mean()
"""


def test_modules_of_the_reader_may_have_names_that_the_written_files_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("data_module", "config"):
        (tmp_path / f"{name}.py").write_text(DATA + SOURCE.replace("def loss", "def other"), encoding="utf-8")
        monkeypatch.delitem(sys.modules, name, raising=False)

    def written(asked: Wrapping, file: str, folder: str | None = None) -> dict[str, Any]:
        names: dict[str, Any] = {}
        text = render_wrapped("mine", asked, Found(False, {}, "a start", folder))[f"src/mine/{file}.py"]
        exec(compile(text, file, "exec"), names)
        return names

    plain = Wrapping("config:Net", dataset="config:make", loss="config:loss", metrics=("data_module:loss",))
    assert isinstance(written(plain, "model")["build_model"](RunConfig()), nn.Module)
    assert written(plain, "task")["build_task"](RunConfig()).loss(torch.ones(2), torch.ones(2)) == 1.0
    assert written(plain, "data")["open_split"](RunConfig(), "validation")[0] == (3.0, 4.0)
    lightning = Wrapping("config:Net", data="data_module:Data", loss="config:loss")
    assert len(written(lightning, "data", "root")["open_split"](RunConfig(), "train")) == 2


def test_the_names_that_modules_of_the_reader_may_not_take_are_those_of_the_written_files() -> None:
    """In files that import them."""
    used: set[str] = set()
    lightning = Wrapping("zebra:Net", data="zebra:Data", metrics=("loss",))
    plain = Wrapping("zebra:Net", dataset="zebra:make", loss="zebra:loss", metrics=("zebra:error",))
    for asked, found in ((lightning, Found(True, {}, "a start", "root")), (lightning, Found(True, {}, "a start", None)),
                         (plain, Found(False, {}, "a start", None))):  # fmt: skip
        for file, text in render_wrapped("mine", asked, found).items():
            if file.endswith(".py") and "import zebra" in text:
                tree = list(ast.walk(ast.parse(text)))
                used |= {node.id for node in tree if isinstance(node, ast.Name)}
                used |= {node.arg for node in tree if isinstance(node, ast.arg)}
                used |= {node.name for node in tree if isinstance(node, ast.FunctionDef | ast.alias)}
    assert used - {"zebra", "list", "str"} <= OWN_NAMES
