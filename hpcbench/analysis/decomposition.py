"""The exact decomposition of the ratio of two times into factors, whose logarithms add up.

The time T of a model is a chain of factors, each of which is known for every entry:

    T = E x (N / (r A)) x (P / P_train) x ((P + F) / P) x ((P + F + S) / (P + F)) x (T_run / (P + F + S)) x (T / T_run)

E is the epochs, N the samples of an epoch, A the accelerators, r the training samples/s of each, P the seconds of
training and evaluation (P_train of training alone), F what the first epoch and evaluation took beyond the others, S
staging, T_run the time to train. T is T_run, except for throughput, where it is the span of all instances over their
number M, and T / T_run is (span / T_run) x (1 / M). Each factor of T_a / T_b is the ratio of one factor; nothing is
estimated.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from hpcbench.analysis.entry_runs import EntryRuns


@dataclass(frozen=True)
class Term:
    """A factor of the time."""

    name: str
    label: str
    group: str
    """``epochs``, ``seconds per epoch``, ``staging and rest`` or ``instances``."""
    meaning: str


TERMS = (
    Term("epochs", "epochs", "epochs", "epochs to the target"),
    Term("samples", "samples of an epoch", "seconds per epoch", "training samples"),
    Term("accelerators", "number of accelerators", "seconds per epoch", "one over the accelerators of an instance"),
    Term("rate", "rate per accelerator", "seconds per epoch", "one over training samples/s per accelerator"),
    Term("evaluation", "evaluation", "seconds per epoch", "training and evaluation over training"),
    Term("first", "first epoch", "staging and rest", "what the first epoch and evaluation take beyond the others"),
    Term("staging", "staging", "staging and rest", "staging within the clock"),
    Term("rest", "rest", "staging and rest", "all other seconds within the clock"),
    Term("spread", "spread of instances", "instances", "first start to last stop over the mean time of an instance"),
    Term("instances", "number of instances", "instances", "one over the instances"),
)
GROUPS = tuple(dict.fromkeys(term.group for term in TERMS))
"""In the order of the chain."""


@dataclass(frozen=True)
class Decomposition:
    """ln(T_a / T_b) and its terms; a term is positive where ``a`` loses by it."""

    a: EntryRuns
    b: EntryRuns
    terms: dict[str, float]
    """By names of ``TERMS``. Where one entry does not state its accelerators, ``rate`` is that of the whole system."""

    @property
    def total(self) -> float:
        """The sum of the terms in the order of the chain."""
        return math.fsum(self.terms.values())

    @property
    def ratio(self) -> float:
        """T_a / T_b."""
        return math.exp(self.total)

    def group(self, name: str) -> float:
        """The sum of the terms of a group."""
        return math.fsum(self.terms[term.name] for term in TERMS if term.group == name and term.name in self.terms)

    @property
    def largest(self) -> Term:
        """The term with the largest absolute value."""
        return max((term for term in TERMS if term.name in self.terms), key=lambda term: abs(self.terms[term.name]))


Factors = dict[str, float | None]


def factors(entry: EntryRuns) -> Factors:
    """The factors of an entry's time; their product is ``score_s``. Raises ``ValueError`` for one without means."""
    seconds, epochs, run = entry.seconds, entry.epochs, entry.first
    if seconds is None or epochs is None or entry.score_s is None:
        raise ValueError(f"{entry.name} has no means")
    samples = float(run.train_samples) if run.train_samples else None
    count = float(run.accelerators) if run.accelerators else None
    per_epoch = seconds.training / epochs
    steady = seconds.epochs_total
    factors_by_name: Factors = {
        "epochs": epochs,
        "samples": samples,
        "accelerators": 1 / count if count else None,
        "rate": per_epoch / (samples or 1.0) * (count or 1.0),
        "evaluation": steady / seconds.training,
        "first": (steady + seconds.first) / steady,
        "staging": (steady + seconds.first + seconds.staging) / (steady + seconds.first),
        "rest": seconds.total / (steady + seconds.first + seconds.staging),
    }
    if entry.throughput and entry.span_s is not None:
        factors_by_name |= {"spread": entry.span_s / seconds.total, "instances": 1 / len(entry.kept)}
    return factors_by_name


def decompose(a: EntryRuns, b: EntryRuns) -> Decomposition:
    """Why ``a`` takes a different time than ``b``. Raises ``ValueError`` where one has no means or the modes differ."""
    return decompose_factors(a, b, factors(a), factors(b))


def decompose_factors(a: EntryRuns, b: EntryRuns, of_a: Factors, of_b: Factors) -> Decomposition:
    """Like ``decompose``, from the factors of both entries, which many pairs have in common."""
    if a.throughput != b.throughput:
        raise ValueError("time to train and throughput do not compare")
    one, other = dict(of_a), dict(of_b)
    for name in ("samples", "accelerators"):
        if one[name] is None or other[name] is None:
            for entry_factors in (one, other):  # what one does not state stays in the rate of both
                entry_factors["rate"] = (entry_factors["rate"] or 0.0) * (entry_factors.pop(name) or 1.0)
    terms = {name: math.log((one[name] or 0.0) / (other[name] or 0.0)) for name in one}
    return Decomposition(a, b, terms)
