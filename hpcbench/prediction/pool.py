"""Which share of a pool of nodes each of several trainings gets, to minimise what is asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement, product
from math import comb
from typing import Literal

from hpcbench.prediction.forecast import Forecast
from hpcbench.results.units import counted
from staging.errors import InputError

Aim = Literal["time", "node-hours", "energy"]
HOUR_S = 3600.0
MOST_CHOICES = 2_000_000


@dataclass(frozen=True)
class Share:
    """What one training gets."""

    application: str
    forecast: Forecast
    watts: float | None = None
    """Power of a node, measured while this application trained; ``None`` where that is not known."""

    @property
    def node_hours(self) -> float:
        """Node-hours of all its instances."""
        return node_hours(self.forecast)

    @property
    def energy_kwh(self) -> float | None:
        """Energy of its nodes; ``None`` where their power is not known."""
        return None if self.watts is None else energy_kwh(self.forecast, self.watts)


@dataclass(frozen=True)
class Advice:
    """The shares for one aim, all trainings at once."""

    aim: Aim
    shares: tuple[Share, ...]

    @property
    def time_s(self) -> float:
        """Seconds until the last training ends."""
        return max(share.forecast.time.central for share in self.shares)

    @property
    def nodes(self) -> int:
        """Nodes of all trainings."""
        return sum(nodes_of(share.forecast) for share in self.shares)

    @property
    def node_hours(self) -> float:
        """Node-hours of all trainings."""
        return sum(share.node_hours for share in self.shares)

    @property
    def energy_kwh(self) -> float | None:
        """Energy of all trainings; ``None`` unless the power of each is known."""
        known = [share.energy_kwh for share in self.shares]
        return None if None in known else sum(energy for energy in known if energy is not None)


def nodes_of(forecast: Forecast) -> int:
    """Nodes of a training, over all instances."""
    return forecast.training.nodes * forecast.training.instances


def node_hours(forecast: Forecast) -> float:
    """Node-hours of a training, over all instances."""
    return nodes_of(forecast) * forecast.time.central / HOUR_S


def energy_kwh(forecast: Forecast, watts: float) -> float:
    """Energy of a training, over all instances, at ``watts`` per node."""
    return node_hours(forecast) * watts / 1000


def aims(watts: Mapping[str, float | None]) -> tuple[Aim, ...]:
    """What can be minimised; energy only where the power of a node is known for each training."""
    return ("time", "node-hours") if None in watts.values() else ("time", "node-hours", "energy")


def advise(
    choices: Mapping[str, Sequence[Forecast]], pool: int, aim: Aim, watts: Mapping[str, float | None] | None = None,
    trainings: Mapping[str, int] | None = None,
) -> Advice:  # fmt: skip
    """The best shares among the predicted sizes of each application, all trainings at once on at most ``pool`` nodes.

    ``trainings`` is how many there are of each application, one by default; those of one application may have different
    sizes. ``time`` minimises the time until the last one ends, then node-hours; ``node-hours`` and ``energy`` minimise
    those, then time. ``watts`` is the power of a node while each trains, for energy. Raises ``InputError`` where no
    sizes fit.
    """
    numbers = {name: (trainings or {}).get(name, 1) for name in choices}
    names = [name for name, number in numbers.items() for _ in range(number)]
    count = 1
    for name, sizes in choices.items():
        count *= comb(len(sizes) + numbers[name] - 1, numbers[name])
    if count > MOST_CHOICES:
        raise InputError(
            f"{count:,} ways to share {counted(pool, 'node')} are too many; name fewer --nodes or applications"
        )
    best: Advice | None = None
    for parts in product(*(combinations_with_replacement(sizes, numbers[name]) for name, sizes in choices.items())):
        chosen = [forecast for part in parts for forecast in part]
        if sum(map(nodes_of, chosen)) > pool:
            continue
        shares = [Share(name, forecast, (watts or {}).get(name)) for name, forecast in zip(names, chosen, strict=True)]
        advice = Advice(aim, tuple(shares))
        if best is None or key(advice) < key(best):
            best = advice
    if best is None:
        smallest = [min(choices[name], key=nodes_of) for name in names]
        whole = sum(forecast.training.instances for forecast in smallest)
        raise InputError(
            f"--pool {counted(pool, 'node is', 'nodes are')} too few for {counted(whole, 'training')}; the "
            f"smallest sizes need {sum(map(nodes_of, smallest)):,}"
        )
    return best


def key(advice: Advice) -> tuple[float, float]:
    """Sort key: what to minimise first, and what next."""
    if advice.aim == "time":
        return advice.time_s, advice.node_hours
    if advice.aim == "node-hours":
        return advice.node_hours, advice.time_s
    assert advice.energy_kwh is not None
    return advice.energy_kwh, advice.time_s
