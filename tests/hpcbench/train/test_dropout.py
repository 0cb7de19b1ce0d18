"""Random numbers by counter, and dropout masks that belong to the sample."""

import pytest
import torch
from torch import nn

from hpcbench.train.dropout import SampleDropout, set_sample_keys
from hpcbench.train.randomness import sample_keys, uniform

MASK = 2**64 - 1


def splitmix64(state: int) -> int:
    """One output of SplitMix64 for a state, by the published recipe in Python integers."""
    z = (state + 0x9E3779B97F4A7C15) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def test_numbers_are_those_of_splitmix64() -> None:
    # Published first outputs of the generator with seed 1234567.
    golden = 0x9E3779B97F4A7C15
    outputs = [splitmix64(1234567 + step * golden) for step in range(2)]
    assert outputs == [6457827717110365317, 3203168211198807973]
    base = splitmix64(splitmix64(7) + 3 * golden)
    keys = sample_keys(7, 3, torch.tensor([0, 5, 2**40]))
    assert [key % 2**64 for key in keys.tolist()] == [splitmix64(base + n * golden) for n in (0, 5, 2**40)]


def test_uniform_numbers_have_the_moments_of_the_uniform_distribution() -> None:
    numbers = uniform(sample_keys(1, 2, torch.arange(1000)), 1, 1000).double()
    assert numbers.min() >= 0
    assert numbers.max() < 1
    # Four standard errors of a million draws.
    assert abs(numbers.mean() - 0.5) < 4 * (1 / 12 / 1e6) ** 0.5
    assert abs(numbers.var() - 1 / 12) < 4 * (1 / 180 / 1e6) ** 0.5


@pytest.mark.parametrize("neighbor", ["key", "stream", "epoch", "seed", "position"])
def test_neighbors_are_uncorrelated(neighbor: str) -> None:
    indices = torch.arange(500)
    keys = sample_keys(1, 2, indices)
    other = {
        "key": uniform(sample_keys(1, 2, indices + 1), 1, 400),
        "stream": uniform(keys, 2, 400),
        "epoch": uniform(sample_keys(1, 3, indices), 1, 400),
        "seed": uniform(sample_keys(2, 2, indices), 1, 400),
        "position": uniform(keys, 1, 401)[:, 1:],
    }[neighbor]
    numbers = torch.stack((uniform(keys, 1, 400).flatten(), other.flatten()))
    assert abs(torch.corrcoef(numbers.double())[0, 1]) < 4 * 200_000**-0.5


def test_keys_of_seeds_epochs_and_samples_all_differ() -> None:
    keys = [sample_keys(seed, epoch, torch.arange(1000)) for seed in range(10) for epoch in range(10)]
    assert len(torch.cat(keys).unique()) == 100_000


def two_layers() -> nn.Sequential:
    return nn.Sequential(nn.Linear(64, 64), SampleDropout(0.5, stream=1), SampleDropout(0.25, stream=2))


def test_masks_depend_on_neither_order_nor_batch() -> None:
    model, indices, inputs = two_layers(), torch.arange(12), torch.randn(12, 64)

    def outputs(batches: list[torch.Tensor]) -> torch.Tensor:
        results = torch.empty(12, 64)
        for batch in batches:
            set_sample_keys(model, sample_keys(5, 1, indices[batch]))
            results[batch] = model(inputs[batch]).detach()
        return results

    whole = outputs([torch.arange(12)])
    for batches in (torch.randperm(12).split(12), torch.randperm(12).split(5), torch.arange(12).split(1)):
        assert ((outputs(list(batches)) == 0) == (whole == 0)).all()
        torch.testing.assert_close(outputs(list(batches)), whole)


def test_rate_and_scale() -> None:
    layer = SampleDropout(0.3, stream=1)
    set_sample_keys(layer, sample_keys(1, 1, torch.arange(1000)))
    output = layer(torch.ones(1000, 10, 10))
    assert abs((output == 0).double().mean() - 0.3) < 4 * (0.3 * 0.7 / 1e5) ** 0.5
    assert output.unique().tolist() == pytest.approx([0, 1 / 0.7])


def test_layers_draw_differently() -> None:
    layers = [SampleDropout(0.5, stream) for stream in (1, 2)]
    set_sample_keys(nn.Sequential(*layers), sample_keys(1, 1, torch.arange(100)))
    first, second = ((layer(torch.ones(100, 100)) == 0).float().flatten() for layer in layers)
    assert abs(torch.corrcoef(torch.stack((first, second)))[0, 1]) < 0.04


def test_evaluation_and_rate_zero_are_the_identity() -> None:
    inputs = torch.randn(3, 4)
    assert SampleDropout(0.5, stream=1).eval()(inputs) is inputs
    assert SampleDropout(0.0, stream=1)(inputs) is inputs


def test_training_without_keys_or_with_those_of_another_batch_is_refused() -> None:
    layer = SampleDropout(0.5, stream=1)
    with pytest.raises(RuntimeError, match="keys of 0 samples but got a batch of 3; call set_sample_keys"):
        layer(torch.ones(3, 4))
    set_sample_keys(layer, torch.arange(2))
    with pytest.raises(RuntimeError, match="keys of 2 samples but got a batch of 3"):
        layer(torch.ones(3, 4))


def test_an_empty_batch_passes() -> None:
    layer = SampleDropout(0.5, stream=1)
    set_sample_keys(layer, torch.arange(0))
    assert layer(torch.ones(0, 4)).shape == (0, 4)


def test_rate_outside_its_range_is_refused() -> None:
    with pytest.raises(ValueError, match=r"p \(1.0\) must be at least 0 and below 1"):
        SampleDropout(1.0, stream=1)


def test_keys_stay_in_place_and_out_of_the_state() -> None:
    model = two_layers()
    set_sample_keys(model, torch.arange(4))
    place = model[1].keys.data_ptr()
    set_sample_keys(model, torch.arange(3))
    set_sample_keys(model, torch.arange(4) + 7)
    assert model[1].keys.data_ptr() == model[2].keys.data_ptr() == place
    assert model[1].keys.tolist() == [7, 8, 9, 10]
    assert set(model.state_dict()) == {"0.weight", "0.bias"}
