"""The phases of a run: their names, and how tables, pages and plots show them. Imports nothing, so that all can."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PhaseName:
    """One of the phases that exclude each other and add up to the wall time of a run."""

    name: str
    """The name of its span; with ``_s`` appended, of its column."""
    label: str
    """Its name in tables and legends."""
    sentence: str
    """What happens in it, for the page of a run."""
    color: str
    """The key of its colour in ``results/style.py``."""
    in_step: bool = False
    """Whether it is a part of an optimizer step."""
    on_device: bool = False
    """Whether an accelerator works on it while the host continues."""
    long: bool = False
    """Whether it may take many times as long as a step."""
    reads: bool = False
    """Whether bytes that move in it are a sign of life: checkpoints, their reading, and baselines may take long."""
    hatch: str = ""
    """The hatch that tells it from the other parts of a step in greyscale, in matplotlib's notation."""


TABLE = (
    PhaseName("init", "init", "processes, model and logs, before the clock starts", "faint", long=True, reads=True),
    PhaseName("staging", "staging", "copying the dataset to node-local storage", "yellow", long=True, reads=True),
    PhaseName("input_wait", "input wait", "waiting for the next batch", "orange", in_step=True, hatch="...."),
    PhaseName("compute", "compute", "forward and backward passes", "blue", in_step=True, on_device=True),
    PhaseName(
        "communication", "communication",
        "messages that computation does not hide: gradients, halos, batch-norm sums, sharded states, noise scale, "
        "losses",
        "vermillion", in_step=True, on_device=True, hatch="////",
    ),
    PhaseName(
        "waiting", "waiting", "for slower ranks, before such a message can travel", "rose",
        in_step=True, on_device=True, hatch="xxxx",
    ),
    PhaseName(
        "optimizer", "optimizer", "updating the parameters", "sky", in_step=True, on_device=True, hatch="\\\\\\\\"
    ),
    PhaseName("evaluation", "evaluation", "the whole validation set, after every epoch", "green", long=True),
    PhaseName("checkpoint", "checkpoint", "writing checkpoints", "purple", long=True, reads=True),
    PhaseName(
        "finalize", "finalize", "after the clock: figures of the ranks, baselines, plots and this page", "muted",
        long=True, reads=True,
    ),
    PhaseName("other", "other", "everything between the phases above", "pale"),
)  # fmt: skip
"""In the order in which they are shown. ``other`` has no span: it is what the spans leave of the wall time."""

BY_NAME = {phase.name: phase for phase in TABLE}
PHASES = tuple(BY_NAME)
STEP_PHASES = tuple(phase.name for phase in TABLE if phase.in_step)
"""Parts of an optimizer step that have spans; the rest of its wall time is ``other``."""
STEP_PARTS = (*STEP_PHASES, "other")
"""Everything that an optimizer step consists of."""
LONG_PHASES = frozenset(phase.name for phase in TABLE if phase.long)
"""Phases in which a rank may stand still for longer before that counts as a hang."""
READING_PHASES = frozenset(phase.name for phase in TABLE if phase.reads)
"""Phases in which bytes that move are a sign of life."""
ON_DEVICE = tuple(phase.name for phase in TABLE if phase.on_device)
"""Phases that an accelerator works on while the host continues."""


@dataclass(frozen=True)
class MessageKind:
    """One of the kinds of messages that the communication of a step consists of."""

    name: str
    """Its name in columns, with ``_s`` appended."""
    label: str
    sentence: str


MESSAGE_TABLE = (
    MessageKind("gradients", "gradients", "sums of gradients over all ranks"),
    MessageKind("halo", "halos", "parts of samples that several ranks share, forward and backward"),
    MessageKind("batch_norm", "batch norm", "sums of batch-norm statistics and their gradients"),
    MessageKind(
        "sharding", "sharded states", "gathers of sharded parameters, scatters of their gradients, norms of layers"
    ),
    MessageKind("noise_scale", "noise scale", "sums of gradients and norms for the noise scale, where it is measured"),
    MessageKind("losses", "losses", "sums of the losses, once in many steps"),
)
MESSAGE_KINDS = tuple(kind.name for kind in MESSAGE_TABLE)
