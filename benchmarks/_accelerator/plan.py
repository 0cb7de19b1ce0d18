"""What is measured in each call, most important first, with the time that each is likely to take; imports no torch."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
CALLS = ("tests", "train", "rest")
GOALS = {
    "cosmoflow batch 1": {"samples_per_s": 410.0, "published_h100_samples_per_s": 223.7},
    "deepcam batch 8": {"samples_per_s": 130.0, "published_h100_samples_per_s": 81.9},
    "deepcam batch 1": {"samples_per_s": 60.0, "published_h100_samples_per_s": 29.9},
}
"""Goals of training at the published size on one NVIDIA H200, and what the submissions of v3.0 reached per H100."""
GPU_TESTS = (
    "test_training", "test_whole_step", "test_no_waiting", "test_optimizers", "test_batchnorm_group",
    "test_simulators", "test_dali",
)  # fmt: skip


@dataclass(frozen=True)
class Planned:
    """One measurement. Measurements of one ``group`` share a process; the lanes (``lane``) run side by side."""

    name: str
    group: str
    kind: str
    settings: dict[str, Any] = field(default_factory=dict)
    needs_s: float = 10.0
    """The measurement is skipped if less time than this is left."""
    limit_s: float = 120.0
    """Its process is killed after this time."""
    goal: str = ""
    lane: int = 0


def planned(call: str, smoke: bool) -> list[Planned]:
    """The measurements of a call. A processor, which other work may occupy, gets more time for each than a device."""
    measurements = {"tests": tests, "train": train, "rest": rest}[call](smoke)
    return [replace(one, limit_s=3 * one.limit_s) for one in measurements] if smoke else measurements


def tests(smoke: bool) -> list[Planned]:
    """Every file of ``tests/gpu`` in a process of its own, including files that the list above does not have yet."""
    there = {path.stem for path in (ROOT / "tests" / "gpu").glob("test_*.py")}
    names = [name for name in GPU_TESTS if name in there] + sorted(there - set(GPU_TESTS))
    # Training tests take as long as all others together.
    return [
        Planned(name, name, "pytest", {"file": f"tests/gpu/{name}.py"}, 15, 400, lane=int(name != "test_training"))
        for name in names
    ]


BEST = {"precision": "bf16-mixed", "channels_last": True, "graph": "step", "fused": True, "source": "resident"}
EAGER = {"graph": "none"}


SMOKE = {
    "cosmoflow roofs", "cosmoflow batch 2: graph", "cosmoflow batch 2: eager", "cosmoflow batch 2: graph, from files",
    "cosmoflow batch 2: graph, float32", "cosmoflow batch 2: graph, float16", "cosmoflow batch 2: eager, contiguous",
    "cosmoflow batch 2: forward and backward captured", "cosmoflow batch 2: graph, adamw",
    "cosmoflow batch 2: graph, from memory", "cosmoflow batch 2: compiled, graph",
    "cosmoflow batch 2: hpcbench train",
    "deepcam roofs", "deepcam batch 2: eager", "deepcam batch 2: graph, from memory",
    "deepcam batch 2: eager, optimizer not fused", "deepcam batch 2: graph, from files",
    "deepcam batch 2: hpcbench train",
}  # fmt: skip
"""What is tried on a processor: every value of every setting once, and all that is read or run of each application."""


def train(smoke: bool) -> list[Planned]:
    """Both applications, resident in the device's memory, from the host's memory, from files, and in the whole loop."""
    head = {"cosmoflow": [1], "deepcam": [8, 1]}
    both = [(app, batch) for app, batches in head.items() for batch in ([2] if smoke else batches)]
    measurements = [Planned(f"{app} roofs", app, "roofs", {"app": app}, 10) for app in head]
    measurements += [step(app, batch, "graph", profile=True) for app, batch in both]
    measurements += [step(app, batch, "eager", EAGER, profile=batch > 1 or app == "cosmoflow") for app, batch in both]
    measurements += [step(app, batch, "graph, from memory", {"source": "memory"}) for app, batch in both]
    measurements += [
        step(app, batch, "graph, from files", {"source": "files"}, 25) for app, batch in both[: 1 + len(both) // 2]
    ]
    measurements += [
        step(app, batch, "compiled, graph", {"compile": True}, 60, profile=True) for app, batch in both[:2]
    ]
    measurements += [loop(app, batch, smoke) for app, batch in both[:2]]
    measurements += [] if smoke else [step(app, size, "graph") for size in (16, 4) for app in head]
    for app in head:
        batch = 2 if smoke else head[app][0]
        measurements += [
            step(app, batch, "graph, float32", {"precision": "32-true"}),
            step(app, batch, "eager, contiguous", EAGER | {"channels_last": False}),
            step(app, batch, "graph, float16", {"precision": "16-mixed"}),
            step(app, batch, "forward and backward captured", {"graph": "backward"}),
            step(app, batch, "eager, optimizer not fused", EAGER | {"fused": False}),
            step(app, batch, "graph, adamw", {"optimizer": "adamw"}),
        ]
    measurements += [step(app, batch, "compiled, eager", EAGER | {"compile": True}, 60) for app, batch in both[:2]]
    more = [] if smoke else [(app, size) for size in (2, 8) for app in head if size not in head[app]]
    measurements += [step(app, batch, "graph") for app, batch in more]
    measurements += [step(app, batch, "compiled, graph", {"compile": True}, 60) for app, batch in both[2:]]
    return [one for one in measurements if not smoke or one.name in SMOKE]


def step(
    app: str, batch: int, what: str, changes: dict[str, Any] | None = None, needs_s: float = 10, profile: bool = False
) -> Planned:
    """A training step: the best known settings, with ``changes``."""
    optimizer = {"cosmoflow": "sgd", "deepcam": "nvlamb"}[app]
    settings = {**BEST, "compile": False, "optimizer": optimizer, "profile": profile, **(changes or {})}
    goal = f"{app} batch {batch}"
    name = f"{app} batch {batch}: {what}"
    return Planned(name, app, "step", {"app": app, "batch": batch, **settings}, needs_s, 150, goal * (goal in GOALS))


def loop(app: str, batch: int, smoke: bool) -> Planned:
    """``hpcbench train`` from files, with whole steps captured."""
    settings = {"app": app, "batch": batch, "steps": 2 if smoke else 200}
    goal = f"{app} batch {batch}"
    return Planned(f"{goal}: hpcbench train", f"{app} loop", "loop", settings, 40, 150, goal * (goal in GOALS))


def rest(smoke: bool) -> list[Planned]:
    """Optimizers, halos, activation checkpointing, simulators and DALI."""
    edge = 32 if smoke else 512
    return [
        Planned("roofs", "optimizers", "roofs", {"app": "deepcam"}, 10),
        *(optimizer(name) for name in ("adamw", "nvlamb", "lamb", "lars", "sgd")),
        optimizer("adamw", fused=False),
        *(Planned(f"halos, {app}", "halos", "halos", {"app": app}, 15) for app in ("cosmoflow", "deepcam")),
        Planned(f"{edge}^3, checkpointed", "large", "large", {"edge": edge, "checkpointing": True}, 30, 150),
        *(
            Planned(f"simulator, {app}, {where}", "simulators", "simulator", {"app": app, "where": where}, 20)
            for app in ("cosmoflow", "deepcam")
            for where in ("device", "host")
        ),
        Planned("DALI, cosmoflow", "dali", "dali", {"app": "cosmoflow", "batch": 2 if smoke else 4}, 30),
        Planned("DALI, deepcam", "dali", "dali", {"app": "deepcam", "batch": 2 if smoke else 8}, 30),
        Planned(f"{edge}^3, all activations saved", "large", "large", {"edge": edge, "checkpointing": False}, 30, 150),
    ]  # fmt: skip


def optimizer(name: str, fused: bool = True) -> Planned:
    """A step of an optimizer over DeepCAM's tensors."""
    words = f"optimizer {name}" + ("" if fused else ", not fused")
    return Planned(words, "optimizers", "optimizer", {"optimizer": name, "fused": fused}, 8)
