"""A task from functions: the metric of each sample, whether the function gives one number or many."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from hpcbench.adapters.plain_task import PlainTask
from staging.errors import InputError

OUTPUT, TARGET = torch.tensor([[1.0], [2.0], [5.0]]), torch.tensor([[0.0], [0.0], [0.0]])


def largest(output: Tensor, target: Tensor) -> Tensor:
    """No mean over samples."""
    return (output - target).abs().max()


def test_without_a_metric_the_loss_of_each_sample_is_the_score() -> None:
    task = PlainTask(functional.mse_loss)
    scores = task.score(OUTPUT, TARGET)
    assert scores.dtype == torch.float64
    assert scores.tolist() == [[1.0], [4.0], [25.0]]
    assert task.metrics(scores) == {"loss": 10.0}
    assert float(task.loss(OUTPUT, TARGET)) == 10.0
    assert (task.metric, task.metric_key, task.better) == ("loss", "eval_error", "lower")


@pytest.mark.parametrize("metric", [largest, lambda output, target: (output - target).abs()[:, 0]])
def test_a_metric_gives_the_same_for_a_batch_and_for_its_samples_alone(metric: object) -> None:
    task = PlainTask(functional.mse_loss, metric, "higher", "error")  # type: ignore[arg-type]
    assert task.metrics(task.score(OUTPUT, TARGET)) == {"error": 8 / 3}
    alone = torch.cat([task.score(OUTPUT[row : row + 1], TARGET[row : row + 1]) for row in range(3)])
    assert torch.equal(alone, task.score(OUTPUT, TARGET))
    assert task.score(OUTPUT[:0], TARGET[:0]).shape == (0, 1)
    assert task.metric_key == "eval_accuracy"


def test_a_metric_of_another_shape_is_refused() -> None:
    task = PlainTask(functional.mse_loss, lambda output, target: torch.zeros(2, 2), name="odd")
    with pytest.raises(InputError, match=r"odd of a batch of 3 has the shape \(2, 2\); return a number, or"):
        task.score(OUTPUT, TARGET)


def test_a_loss_that_is_no_number_and_an_output_that_is_no_tensor_are_refused() -> None:
    task = PlainTask(lambda output, target: (output - target)[:, :1].abs())
    with pytest.raises(InputError, match=r"the loss function returned a loss of the shape \(3, 1\); return the mean"):
        task.loss(OUTPUT, TARGET)
    assert task.loss(OUTPUT[:1], TARGET[:1]).shape == ()
    with pytest.raises(InputError, match="the loss function returned a float; return the loss of the batch, a tensor"):
        PlainTask(lambda output, target: 0.5).loss(OUTPUT, TARGET)  # type: ignore[arg-type,return-value]
    with pytest.raises(InputError, match="the model returned a dict, not a tensor; wrap it in a module that returns"):
        task.forward(lambda inputs: {"logits": inputs}, OUTPUT, TARGET)
