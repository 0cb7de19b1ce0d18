"""How the steps of a LightningModule are called, and which of the metrics that they log are refused."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from hpcbench.adapters.lightning_module import LightningNetwork, LightningTask, optimizers_of
from hpcbench.config.schema import RunConfig
from staging.errors import InputError

X, Y = torch.tensor([[0.0], [1.0], [2.0]]), torch.tensor([[1.0], [2.0], [9.0]])


class Means(nn.Module):
    """A module with the methods of a LightningModule, which stands in for one without the library."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Linear(1, 1)

    def configure_model(self) -> None:
        """Nothing is left to make."""

    def setup(self, stage: str) -> None:
        """Nothing is left to set up."""

    def forward(self, x: Tensor) -> Tensor:
        """A line."""
        output: Tensor = self.dense(x)
        return output

    def training_step(self, batch: Any, *args: Any) -> Tensor:
        """The mean squared error."""
        return functional.mse_loss(self(batch[0]), batch[1])

    def validation_step(self, batch: Any) -> None:
        """Log the mean error."""
        owner: Any = self
        owner.log("mae", (self(batch[0]) - batch[1]).abs().mean())


def test_a_step_gets_the_number_of_the_batch_where_lightning_gives_it() -> None:
    def unnamed(self: Any, batch: Any, _: int) -> Any:
        assert _ == 0
        return functional.mse_loss(self(batch[0]), batch[1])

    def several(self: Any, *batch_and_number: Any) -> Any:
        (x, y), number = batch_and_number
        assert number == 0
        return functional.mse_loss(self(x), y)

    def alone(self: Any, batch: Any, *, scale: float = 1.0, **settings: Any) -> Any:
        assert not settings
        return scale * functional.mse_loss(self(batch[0]), batch[1])

    for step in (unnamed, several, alone):
        module = type("Changed", (Means,), {"training_step": step})()
        loss = LightningNetwork(module, ("mae",))(X, Y)
        assert loss.item() == functional.mse_loss(module(X), Y).item()


def f1(x: Tensor, y: Tensor) -> Tensor:
    """F1 of the class above 0, 0 without any sample in it."""
    found, true = x > 0, y > 0
    return 2 * (found & true).sum() / (found.sum() + true.sum()).clamp(min=1)


METRICS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "rmse": lambda x, y: functional.mse_loss(x, y).sqrt(),
    "f1": f1,
    "sum": lambda x, y: (x - y).abs().sum(),
    "r2": lambda x, y: 1 - (x - y).square().sum() / (y - y.mean()).square().sum(),
    "mae": lambda x, y: (x - y).abs().mean(),
    "accuracy": lambda x, y: ((x > 0) == (y > 0)).double().mean(),
}
"""Metrics of outputs and targets, of which the last two are means over samples."""


class Logging(Means):
    """Returns its inputs, and logs the metrics of ``METRICS``."""

    def forward(self, x: Tensor) -> Tensor:
        """The inputs."""
        return x

    def validation_step(self, batch: Any) -> None:
        """Log all of them."""
        owner: Any = self
        owner.log_dict({name: metric(*batch) for name, metric in METRICS.items()})


@pytest.mark.slow
@pytest.mark.parametrize(("size", "mixed"), [(2, False), (64, False), (64, True), (256, False)])
def test_only_means_over_samples_pass_on_drawn_data(size: int, mixed: bool) -> None:
    draws, refused = torch.Generator(), dict.fromkeys(METRICS, 0)
    draws.manual_seed(1)
    trials, batches = 25, 40
    for name in METRICS:
        task = LightningTask((name,), "lower", RunConfig())
        for _ in range(trials):
            network = LightningNetwork(Logging(), (name,)).eval()
            for _ in range(batches):
                y = torch.randn(size, 1, generator=draws)
                x = y + 0.7 * torch.randn(size, 1, generator=draws)
                try:
                    with torch.autocast("cpu", torch.bfloat16, enabled=mixed):
                        task.check_batch(network, x, y)
                except InputError:
                    refused[name] += 1
                    break
    assert refused == dict.fromkeys(METRICS, trials) | {"mae": 0, "accuracy": 0}


def test_a_metric_that_is_the_same_for_all_samples_is_looked_at_again() -> None:
    network = LightningNetwork(Logging(), ("f1", "mae")).eval()
    task = LightningTask(("f1", "mae"), "higher", RunConfig())
    made_up = torch.rand(16, 1)
    task.forward(network, made_up, torch.zeros(16, 1))
    assert network.differences == {"f1": 0, "mae": 0}  # a pass before the clock, of made-up samples, shows nothing
    x, y = torch.linspace(-1, -0.1, 16)[:, None], torch.linspace(-1, 1, 16)[:, None]
    task.check_batch(network, x, y)
    assert network.differences["f1"] == 0  # none of the samples is found
    assert network.differences["mae"] > 0.5
    with pytest.raises(InputError, match=r"'f1' of Logging is 1 for 8 samples, and 0\.5 as the mean of each"):
        task.check_batch(network, y, y)


def test_a_module_that_computes_only_in_half_precision_is_compared_in_it() -> None:
    class Half(Logging):
        def validation_step(self, batch: Any) -> None:
            if not torch.is_autocast_enabled("cpu"):
                raise RuntimeError("expected half precision")
            super().validation_step(batch)

    y = torch.linspace(-1, 1, 16)[:, None]
    for name, refused in (("mae", False), ("f1", True)):
        network, task = LightningNetwork(Half(), (name,)).eval(), LightningTask((name,), "higher", RunConfig())
        with (
            torch.autocast("cpu", torch.bfloat16),
            pytest.raises(InputError, match="as the mean of each alone") if refused else nullcontext(),
        ):
            task.check_batch(network, y, y + 0.1)


def test_a_metric_that_never_differs_takes_time_of_the_first_batches_alone() -> None:
    network, task = LightningNetwork(Logging(), ("mae",)).eval(), LightningTask(("mae",), "lower", RunConfig())
    for _ in range(200):
        task.check_batch(network, torch.ones(8, 1), torch.ones(8, 1))
    assert network.checked == 64


def test_an_evaluation_that_diverged_is_not_taken_for_a_metric_of_another_kind() -> None:
    network, task = LightningNetwork(Logging(), ("mae",)).eval(), LightningTask(("mae",), "lower", RunConfig())
    task.check_batch(network, torch.full((4, 1), torch.nan), torch.zeros(4, 1))
    assert network.differences == {"mae": 0}


def test_a_step_that_needs_several_samples_is_refused() -> None:
    def several(self: Any, batch: Any) -> None:
        if len(batch[0]) < 2:
            raise ValueError("needs two samples")
        self.log("mae", (batch[0] - batch[1]).abs().mean())

    network = LightningNetwork(type("Changed", (Means,), {"validation_step": several})(), ("mae",)).eval()
    with pytest.raises(InputError, match=r"of Changed fails for one sample \(ValueError: needs two samples\), which a"):
        LightningTask(("mae",), "lower", RunConfig()).check_batch(network, X, Y)


def test_settings_for_which_ranks_make_passes_without_samples_are_refused() -> None:
    config = RunConfig()
    config.parallel.shard_states = True
    with pytest.raises(InputError, match=r"parallel\.shard_states \(true\) needs passes of ranks that are out of"):
        LightningTask(("mae",), "lower", config)
    config.parallel.shard_states, config.train.batchnorm_group_size = False, 2
    said = r"train\.batchnorm_group_size \(2\) over processes needs .*; set it 1, or wrap its network with --dataset"
    with pytest.raises(InputError, match=said):
        LightningTask(("mae",), "lower", config)
    config.parallel.simulated_ranks = 2  # of one process
    assert LightningTask(("mae",), "lower", config).metric == "mae"


def test_the_model_is_configured_after_the_setup_as_in_lightning() -> None:
    def setup(self: Any, stage: str) -> None:
        self.width = 1 if stage == "fit" else 0

    def configure(self: Any) -> None:
        self.dense = nn.Linear(self.width, 1)

    module = type("Late", (Means,), {"setup": setup, "configure_model": configure})()
    assert LightningNetwork(module, ("mae",))(X).shape == (3, 1)


def test_optimizers_come_in_each_form_that_lightning_takes() -> None:
    module = Means()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    one = {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}
    lists = [optimizer], [schedule]
    for made in (optimizer, [optimizer], (optimizer,), lists, ([optimizer], schedule), [[optimizer], []], one, [one]):
        cls = type("Chosen", (Means,), {"configure_optimizers": lambda self, made=made: made})
        assert optimizers_of(cls()) == [optimizer]


def test_what_is_logged_must_be_a_number_of_any_library() -> None:
    def logged(value: Any) -> Any:
        step = {"validation_step": lambda self, batch: self.log("mae", value)}
        return LightningNetwork(type("Logs", (Means,), step)(), ("mae",)).eval()(X, Y)

    assert logged(np.float32(0.5)).tolist() == logged(torch.tensor([0.5])).tolist() == [[0.5]] * 3
    with pytest.raises(InputError, match=r"logs 'mae' with the shape \(2,\); log one number"):
        logged(torch.zeros(2))


def test_a_loss_for_each_sample_is_refused() -> None:
    step = {"training_step": lambda self, batch: (self(batch[0]) - batch[1]).square()}
    with pytest.raises(InputError, match=r"training_step of Each returned a loss of the shape \(3, 1\)"):
        LightningNetwork(type("Each", (Means,), step)(), ("mae",))(X, Y)


@pytest.mark.parametrize("mode", ["training", "validation"])
def test_a_step_that_keeps_tensors_for_a_hook_that_is_not_called_is_refused(mode: str) -> None:
    steps, epoch = {"training": "training_step", "validation": "validation_step"}, mode.replace("training", "train")

    def keep(self: Any, batch: Any) -> Any:
        error = (self(batch[0]) - batch[1]).abs().mean()
        self.kept.append({"error": error} if self.tensors else float(error.detach()))
        self.log("mae", error)
        return error

    def made(**members: Any) -> Any:
        module = type("Keeps", (Means,), {steps[mode]: keep, **members})()
        module.kept, module.tensors = [], True
        return LightningNetwork(module, ("mae",)).train(mode == "training")

    hook = {f"on_{epoch}_epoch_end": lambda self: self.kept.clear()}
    with pytest.raises(InputError, match=rf"{steps[mode]} of Keeps keeps tensors in 'kept', .* on_{epoch}_epoch_end;"):
        made(**hook)(X, Y)
    made()(X, Y)  # which Lightning would keep as well
    numbers = made(**hook)
    numbers.module.tensors = False
    numbers(X, Y)
    assert len(numbers.module.kept) == 1
