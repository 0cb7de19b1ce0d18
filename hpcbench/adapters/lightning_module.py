"""A LightningModule as a model and a task: training_step gives the loss, and validation_step logs the metrics.

The optimizer, its schedule, precision and gradients are the suite's. Does not import Lightning: objects are recognized
by their methods.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from numbers import Real
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from hpcbench.adapters.no_trainer import NoTrainer, check_hooks, overridden
from hpcbench.adapters.pairs import Keys
from hpcbench.adapters.plain_task import single_loss
from hpcbench.config.schema import RunConfig
from hpcbench.train.task import Task
from staging.errors import InputError

HOOKS = (
    "optimizer_step", "optimizer_zero_grad", "backward", "configure_gradient_clipping", "lr_scheduler_step",
    "on_before_backward", "on_after_backward", "on_before_optimizer_step", "on_before_zero_grad", "on_fit_start",
    "on_train_start", "on_train_epoch_start", "on_train_batch_start", "on_train_batch_end",
    "on_before_batch_transfer", "on_after_batch_transfer", "transfer_batch_to_device",
)  # fmt: skip
"""Hooks that change a step or a batch, which the suite does not call."""
CLEARING = {
    "training_step": ("on_train_epoch_end", "on_train_end"),
    "validation_step": ("on_validation_epoch_start", "on_validation_start", "on_validation_epoch_end",
                        "on_validation_end"),
}  # fmt: skip
"""Hooks in which modules read and clear what a step keeps; the suite does not call these either."""
COMPARED = 8
"""Samples of a batch whose metrics are compared: together, and each alone."""
CLOSE, CLOSE_MIXED = 1e-3, 0.05
"""Largest relative difference of equal means, in full and in mixed precision."""
CHECKED_BATCHES = 64
"""The most batches that are looked at: the passes take time of the evaluations."""
ENOUGH = 1.0
"""Relative differences between samples that add up to this show whether a metric is a mean: one 0 and 1 are enough."""


class Logged:
    """What a module logged, by name, in place of ``self.log`` and ``self.log_dict``."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}

    def log(self, name: str, value: Any, *_: Any, **__: Any) -> None:
        """Log a value as a LightningModule does; how often and where it is logged is ignored."""
        self.values[name] = value

    def log_dict(self, values: Mapping[str, Any], *_: Any, **__: Any) -> None:
        """Log values by name, as a LightningModule does."""
        self.values.update(values)


class LightningNetwork(nn.Module):
    """The module's steps as a forward pass of inputs and target: the loss, or in evaluation the batch's ``metrics``.

    In evaluation every sample has a row (batch, metrics) with the mean over its batch, so that the mean over all rows
    is the mean over all samples, as in Lightning. With inputs alone it is the module's ``forward``.
    Raises ``InputError`` for a module that cannot be trained unchanged.
    """

    def __init__(self, module: nn.Module, metrics: tuple[str, ...], keys: Keys | None = None) -> None:
        super().__init__()
        self.name = type(module).__name__
        self.metrics, self.keys = metrics, keys
        self.logged = Logged()
        self.differences = dict.fromkeys(metrics, 0.0)
        """Sum over the batches that were checked of each metric's relative difference between samples."""
        self.checked = 0
        check_module(module)
        owner: Any = module
        owner.trainer = NoTrainer(self.name)
        owner.log, owner.log_dict = self.logged.log, self.logged.log_dict
        owner.setup("fit")
        owner.configure_model()
        check_optimizers(optimizers_of(module), self.name)
        self.module = module

    def forward(self, inputs: Tensor, target: Tensor | None = None) -> Tensor:
        """See the class."""
        if target is None or not len(inputs):
            output: Tensor = self.module(inputs)
            return output if target is None or self.training else output.new_zeros((0, len(self.metrics)))
        if self.training:
            return loss_of(self.step("training_step", inputs, target), self.name)
        return self.evaluated(inputs, target).expand(len(inputs), -1)

    def _apply(self, fn: Any, recurse: bool = True) -> LightningNetwork:
        """Move parameters as ``nn.Module`` does, and set ``device`` and ``dtype`` of LightningModules to match."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        first = next(self.module.parameters(), None)
        for part in (child for child in self.module.modules() if first is not None and is_lightning(child)):
            # Their own ``to`` does the same; calling it would move parameters a second time, which torch refuses for
            # parameters under a fake mode.
            part._device, part._dtype = first.device, first.dtype  # type: ignore[union-attr,assignment]
        return self

    def step(self, method: str, inputs: Tensor, target: Tensor) -> Any:
        """What ``training_step`` or ``validation_step`` returns for a batch in the form that the module knows."""
        batch = [inputs, target] if self.keys is None else dict(zip(self.keys, (inputs, target), strict=True))
        called: Callable[..., Any] = getattr(self.module, method)
        self.logged.values.clear()
        lengths = {} if torch.compiler.is_compiling() else lengths_of_lists(self.module)
        returned = called(batch, 0) if takes_number(called) else called(batch)
        if not torch.compiler.is_compiling():
            check_kept(self.module, method, lengths)
        return returned

    def evaluated(self, inputs: Tensor, target: Tensor) -> Tensor:
        """The metrics that ``validation_step`` logs: (metrics,)."""
        self.step("validation_step", inputs, target)
        values = []
        for name in self.metrics:
            value = self.logged.values.get(name)
            if value is None:
                logged_names = ", ".join(self.logged.values) or "nothing"
                raise InputError(
                    f"validation_step of {self.name} logs no '{name}' (it logs {logged_names}); take one of these as "
                    "--metric"
                )
            if isinstance(value, Tensor) and value.numel() != 1:
                raise InputError(
                    f"validation_step of {self.name} logs '{name}' with the shape {tuple(value.shape)}; log one number"
                )
            if not isinstance(value, Tensor | Real):
                raise InputError(
                    f"validation_step of {self.name} logs '{name}' as a {type(value).__name__}, which accumulates over "
                    "batches; log its value for the batch, a mean over samples"
                )
            values.append(torch.as_tensor(value, device=inputs.device).detach().reshape(()).double())
        return torch.stack(values)

    def check_means(self, inputs: Tensor, target: Tensor) -> None:
        """Refuse a metric that is not a mean over samples: with other batches it would be another number.

        Looks at batches until samples have differed enough, since many metrics that are no means, such as F1, are 0
        for all samples at first. Computes in full precision where the module can. Raises ``InputError``.
        """
        if len(inputs) < 2 or self.checked == CHECKED_BATCHES or min(self.differences.values()) >= ENOUGH:
            return
        self.checked += 1
        try:
            with torch.autocast(inputs.device.type, enabled=False):
                together, alone = self.compared(inputs, target)
            close = CLOSE
        except RuntimeError:  # of an operation that takes only numbers of half precision
            together, alone = self.compared(inputs, target)
            close = CLOSE_MIXED
        for name, whole, values in zip(self.metrics, together, zip(*alone, strict=True), strict=True):
            mean, scale = sum(values) / len(values), max(abs(whole), *map(abs, values), 1e-3)
            if not math.isfinite(whole):  # for which the run ends in any case
                continue
            if not math.isfinite(mean) or abs(whole - mean) > close * scale:
                raise InputError(
                    f"'{name}' of {self.name} is {whole:.6g} for {len(values)} samples, and {mean:.6g} as the mean of "
                    "each alone, so it would change with batch and ranks; log a mean over samples"
                )
            self.differences[name] += (max(values) - min(values)) / scale

    def compared(self, inputs: Tensor, target: Tensor) -> tuple[list[float], list[list[float]]]:
        """The metrics of some samples of a batch together, and of each of them alone."""
        rows = range(0, len(inputs), -(-len(inputs) // COMPARED))
        together: list[float] = self.evaluated(inputs[:: rows.step], target[:: rows.step]).tolist()
        return together, [self.evaluated_alone(inputs[row : row + 1], target[row : row + 1]) for row in rows]

    def evaluated_alone(self, inputs: Tensor, target: Tensor) -> list[float]:
        """The metrics of one sample. Raises ``InputError`` if they need several."""
        try:
            values: list[float] = self.evaluated(inputs, target).tolist()
        except (ValueError, IndexError, RuntimeError) as error:
            reason = str(error).partition("\n")[0]
            raise InputError(
                f"validation_step of {self.name} fails for one sample ({type(error).__name__}: {reason}), which a rank "
                "may get as its batch; log means over samples"
            ) from None
        return values


class LightningTask(Task):
    """The loss that a ``LightningNetwork`` returns, and the metrics that it logs; the target is for the first one.

    Raises ``InputError`` for settings that do not go with the steps of a module.
    """

    def __init__(self, metrics: tuple[str, ...], better: Literal["lower", "higher"], config: RunConfig) -> None:
        check_passes(config)
        self.columns, self.metric, self.better = metrics, metrics[0], better
        self.metric_key = "eval_error" if better == "lower" else "eval_accuracy"

    def forward(self, model: Callable[..., Any], inputs: Tensor, target: Tensor) -> Any:
        """The loss, or in evaluation the metrics."""
        return model(inputs, target)

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        """What ``training_step`` returned."""
        return output

    def score(self, output: Tensor, target: Tensor) -> Tensor:
        """What ``validation_step`` logged."""
        return output.double()

    def check_batch(self, model: nn.Module, inputs: Tensor, target: Tensor) -> None:
        """Refuse metrics that are no means over samples. Raises ``InputError``."""
        for part in model.modules():
            if isinstance(part, LightningNetwork):
                part.check_means(inputs, target)


def check_passes(config: RunConfig) -> None:
    """Refuse settings for which ranks without samples make passes, which a step cannot. Raises ``InputError``."""
    size, simulated = config.train.batchnorm_group_size, config.parallel.simulated_ranks or 1
    for setting, is_set, change in (
        ("parallel.shard_states (true)", config.parallel.shard_states, "false"),
        (f"train.batchnorm_group_size ({size}) over processes", size > simulated, "1"),
    ):
        if is_set:
            raise InputError(
                f"{setting} needs passes of ranks that are out of samples, which the steps of a LightningModule cannot "
                f"make; set it {change}, or wrap its network with --dataset and --loss, as a plain module"
            )


def is_lightning(model: nn.Module) -> bool:
    """Whether ``model`` is a LightningModule."""
    return any(cls.__name__ == "LightningModule" for cls in type(model).__mro__)


def takes_number(step: Callable[..., Any]) -> bool:
    """Whether ``step`` takes the batch's number after the batch, whatever it is called, as Lightning decides it."""
    kinds = [parameter.kind for parameter in inspect.signature(step).parameters.values()]
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return inspect.Parameter.VAR_POSITIONAL in kinds or sum(kind in positional for kind in kinds) >= 2


def lengths_of_lists(module: nn.Module) -> dict[str, int]:
    """The length of each list among the attributes of ``module``."""
    return {name: len(value) for name, value in vars(module).items() if isinstance(value, list)}


def check_kept(module: nn.Module, method: str, lengths: Mapping[str, int]) -> None:
    """Refuse a step that kept tensors in a list, to be cleared in a hook that is not called. Raises ``InputError``.

    ``lengths`` are those of the lists before the step.
    """
    for name, length in lengths.items():
        value = getattr(module, name, None)
        if not isinstance(value, list) or len(value) <= length or not holds_tensor(value[-1]):
            continue
        hooks = [hook for hook in CLEARING[method] if overridden(module, hook)]
        if hooks:
            raise InputError(
                f"{method} of {type(module).__name__} keeps tensors in '{name}', which would fill the memory, since a "
                f"run of the suite does not call {', '.join(hooks)}; log means over samples in the step instead"
            )


def holds_tensor(entry: Any) -> bool:
    """Whether ``entry`` is a tensor, or a list or mapping that holds one."""
    parts = entry.values() if isinstance(entry, Mapping) else entry if isinstance(entry, list | tuple) else [entry]
    return any(isinstance(part, Tensor) for part in parts)


def loss_of(returned: Any, name: str) -> Tensor:
    """The loss that a step returned. Raises ``InputError`` if there is none."""
    loss = returned.get("loss") if isinstance(returned, Mapping) else returned
    if not isinstance(loss, Tensor):
        raise InputError(f"training_step of {name} returned {type(returned).__name__}; return the loss of the batch")
    return single_loss(loss, f"training_step of {name}")


def check_module(module: nn.Module) -> None:
    """Refuse a module that the suite would not train as Lightning does. Raises ``InputError``."""
    name = type(module).__name__
    for method in ("training_step", "validation_step", "forward"):
        if not overridden(module, method):
            raise InputError(f"{name} has no {method}; a LightningModule needs it to be run here")
    if not getattr(module, "automatic_optimization", True):
        raise InputError(f"{name} optimizes manually, but here the suite does; set automatic_optimization to True")
    check_hooks(module, HOOKS)


def optimizers_of(module: Any) -> list[Optimizer]:
    """The optimizers that ``configure_optimizers`` makes, if it can without a Trainer."""
    if not overridden(module, "configure_optimizers"):
        return []
    try:
        made = module.configure_optimizers()
    except InputError:  # the length of the training, for a schedule
        return []
    if isinstance(made, tuple | list) and len(made) == 2 and isinstance(made[0], list | tuple):
        made = made[0]  # beside it a schedule, or a list of them
    several = made if isinstance(made, tuple | list) else [made]
    return [entry["optimizer"] if isinstance(entry, Mapping) else entry for entry in several if entry is not None]


def check_optimizers(optimizers: list[Optimizer], name: str) -> None:
    """Refuse several optimizers. Raises ``InputError``."""
    if len(optimizers) > 1:
        raise InputError(f"configure_optimizers of {name} makes {len(optimizers)} optimizers; the suite runs one")
