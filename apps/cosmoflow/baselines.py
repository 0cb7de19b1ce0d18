"""What a network has to beat: predicting the mean label, and ridge regression on power spectra and simple counts."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from apps.cosmoflow.config import PARAMETERS, Config
from apps.cosmoflow.data import CosmoFlowDataset, open_split
from apps.cosmoflow.fields import power_spectra

Array = NDArray[np.float64]

FOLDS = 5
PENALTIES = 10.0 ** np.arange(-2.0, 5.0, 0.5)
"""Candidates for the ridge penalty, for features of unit variance."""
MOST_BANDS = 16
"""Shells of wave number are joined into at most this many bands."""
BATCH_CELLS, MOST_THREADS = 2**21, 8
"""About so many cells are summarised together, by so many threads at most: large samples would fill the memory."""
MOST_SAMPLES = 4096
"""Most samples of a split that are used: more change little, and a published set would take days."""


def baselines(config: Config) -> dict[str, dict[str, float]]:
    """Return metrics on the validation split of predictors fitted to the training split, by the predictor's name."""
    train_features, train_labels = features_of_split(open_split(config, "train"))
    features, labels = features_of_split(open_split(config, "validation"))
    mean = np.broadcast_to(train_labels.mean(axis=0), labels.shape)
    ridge = fit_ridge(train_features, train_labels)
    return {
        "predict the mean": metrics(mean, labels),
        "ridge regression on power spectra": metrics(ridge.predict(features), labels),
    }


def metrics(predicted: Array, labels: Array) -> dict[str, float]:
    """Mean absolute error over all labels, and of each label, in scaled units, named as the task reports them."""
    errors = np.abs(predicted - labels).mean(axis=0)
    errors_by_label = {f"mae_{name}": float(error) for name, error in zip(PARAMETERS, errors, strict=True)}
    return {"mae": float(errors.mean())} | errors_by_label


def features_of_split(samples: CosmoFlowDataset) -> tuple[Array, Array]:
    """Features (n, f) and labels (n, 4) of the first ``MOST_SAMPLES`` samples of a split."""

    def rows(first: int) -> tuple[Array, Array]:
        batch = [samples[index] for index in range(first, min(first + together, count))]
        counts, labels = (torch.stack(each) for each in zip(*batch, strict=True))
        return features_of_samples(counts).numpy(), labels.double().numpy()

    count, threads = min(len(samples), MOST_SAMPLES), torch.get_num_threads()
    together = max(1, BATCH_CELLS // samples[0][0].numel())
    # Batches side by side, each on one thread.
    with ThreadPoolExecutor(min(threads, MOST_THREADS), "baselines", torch.set_num_threads, (1,)) as pool:
        try:
            features, labels = zip(*pool.map(rows, range(0, count, together)), strict=True)
        finally:
            torch.set_num_threads(threads)
    return np.concatenate(features), np.concatenate(labels)


def features_of_samples(counts: Tensor) -> Tensor:
    """Summarise counts (n, C, S, S, S) as features (n, f) float64.

    From ln(1 + count): log power of each channel and correlation of each pair of channels by band of wave number, mean
    and log variance. From the count: log variance, and the fractions of cells with 0 to 4 particles and with 8 or more.
    """
    number = torch.arange(int(counts.max()) + 1, dtype=torch.float32)
    logs = number.log1p().index_select(0, counts.flatten().int()).view(counts.shape)  # few counts, many cells
    power, modes = power_spectra(logs)
    bands = joined(power * modes, modes)
    pairs = torch.triu_indices(counts.shape[1], counts.shape[1])
    same = pairs[0] == pairs[1]
    auto = bands[:, same].clamp(min=1e-12)
    correlation = bands[:, ~same] / (auto[:, pairs[0, ~same]] * auto[:, pairs[1, ~same]]).sqrt()
    return torch.cat([auto.log().flatten(1), correlation.flatten(1), one_point(counts)], dim=1)


def one_point(counts: Tensor) -> Tensor:
    """The features of ``features_of_samples`` that need no neighbors, from a histogram of each channel."""
    bins = max(9, int(counts.max()) + 1)
    channels = counts.flatten(2).flatten(0, 1)
    offsets = torch.arange(len(channels))[:, None] * bins
    cells = torch.bincount((channels + offsets).flatten(), minlength=len(channels) * bins)
    share = cells.view(*counts.shape[:2], bins).double() / counts[0, 0].numel()
    number = torch.arange(bins, dtype=torch.float64)
    means, variances = [], []
    for value in (number.log1p(), number):
        means.append(share @ value)
        variances.append((share @ value**2 - means[-1] ** 2).clamp(min=1e-12).log())
    return torch.cat([means[0], *variances, share[..., :5].flatten(1), share[..., 8:].sum(-1)], dim=1)


def joined(weighted: Tensor, modes: Tensor) -> Tensor:
    """Mean power in at most ``MOST_BANDS`` bands, from the power times the number of modes of each shell."""
    edges = np.unique(np.geomspace(1, len(modes) + 1, MOST_BANDS + 1).round().astype(int) - 1).tolist()
    return torch.stack([weighted[..., a:b].sum(-1) / modes[a:b].sum() for a, b in pairwise(edges)], dim=-1)


@dataclass(frozen=True)
class Ridge:
    """A linear predictor of labels from features; both are centered, and the features are scaled."""

    center: Array
    scale: Array
    offset: Array
    weights: Array

    def predict(self, features: Array) -> Array:
        """Predict labels (n, 4), clipped to [-1, 1], the range of all labels."""
        return np.asarray(np.clip((features - self.center) / self.scale @ self.weights + self.offset, -1, 1))


def fit_ridge(features: Array, labels: Array) -> Ridge:
    """Fit ridge regression, with a penalty for each label chosen by five-fold cross-validation."""
    folds = np.arange(len(features)) % min(FOLDS, len(features))
    errors = np.zeros((len(PENALTIES), labels.shape[1]))
    for fold in range(folds.max() + 1) if len(features) > 1 else []:
        training = folds != fold
        for row, fit in enumerate(_fits(features[training], labels[training])):
            errors[row] += np.abs(fit.predict(features[~training]) - labels[~training]).sum(axis=0)
    fits = _fits(features, labels)
    best = errors.argmin(axis=0)
    weights = np.stack([fits[choice].weights[:, label] for label, choice in enumerate(best)], axis=1)
    return Ridge(fits[0].center, fits[0].scale, fits[0].offset, weights)


def _fits(features: Array, labels: Array) -> list[Ridge]:
    """A fit for every penalty, from one singular value decomposition."""
    center, offset = features.mean(axis=0), labels.mean(axis=0)
    scale = features.std(axis=0)
    scale[scale < 1e-9] = 1.0
    left, singular, right = np.linalg.svd((features - center) / scale, full_matrices=False)
    projected = left.T @ (labels - offset)
    shrunk = [right.T @ ((singular / (singular**2 + penalty))[:, None] * projected) for penalty in PENALTIES]
    return [Ridge(center, scale, offset, weights) for weights in shrunk]
