"""The options of a gains study: what each sets, what the plain baseline sets, and what this machine cannot do.

An option is one change of the plain baseline. Options of one factor exclude each other, so that at most one of them is
among the options that are tried together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hpcbench.results.units import counted

PLAIN = {
    "train.precision": "32-true", "train.tf32": "false", "train.compile": "false", "train.cuda_graph": "false",
    "train.channels_last": "false", "optim.fused": "false", "parallel.overlap": "false",
    "parallel.bucket_order": "backward", "parallel.reduce_dtype": "gradient", "data.loader": "torch",
    "data.workers": "0",
}  # fmt: skip
"""The plain baseline: float32 without TF32, nothing compiled, gradients sent when all are there."""
FACTORS = ("precision", "compiler", "graph", "memory", "optimizer", "messages", "sums", "loader", "ranks")
OF_MESSAGES: tuple[str, ...] = ("messages", "sums")
"""Factors that do not apply to one rank alone."""
BASELINE = "baseline"


@dataclass(frozen=True)
class Option:
    """One change of the baseline. ``name`` names its run folders, ``label`` tells a reader what it is."""

    name: str
    factor: str
    label: str
    settings: Mapping[str, str]
    ranks: int | None = None
    """Ranks of a node, if the option changes them."""


@dataclass(frozen=True)
class Missing:
    """An option that is not measured, and why."""

    label: str
    reason: str


@dataclass(frozen=True)
class Machine:
    """What decides which options a machine can do; a reason is empty if the machine can."""

    cores: int
    accelerators: int = 0
    no_tf32: str = ""
    no_compiler: str = ""
    no_graph: str = ""


@dataclass(frozen=True)
class Shape:
    """How the baseline trains: its ranks, its global batch, and the bytes of all gradients."""

    ranks: int
    global_batch_size: int
    gradient_bytes: int
    bucket_bytes: int

    @property
    def buckets(self) -> int:
        """About how many messages gradients are sent in."""
        return -(-self.gradient_bytes // self.bucket_bytes)


def candidates(machine: Machine, shape: Shape) -> tuple[list[Option], list[Missing]]:
    """Every option, in the order of ``FACTORS``, and those that this machine cannot do."""
    options: list[Option] = []
    missing: list[Missing] = []
    for option, reason in [
        (Option("tf32", "precision", "TF32", {"train.tf32": "true"}), machine.no_tf32),
        (Option("bf16", "precision", "bf16", {"train.precision": "bf16-mixed"}), ""),
        (Option("fp16", "precision", "fp16", {"train.precision": "16-mixed"}), ""),
        (Option("compiled", "compiler", "compiled", {"train.compile": "true"}), machine.no_compiler),
        (Option("graph", "graph", "CUDA graph", {"train.cuda_graph": "true"}), machine.no_graph),
        (Option("channels-last", "memory", "channels last", {"train.channels_last": "true"}), ""),
        (Option("fused", "optimizer", "fused optimizer", {"optim.fused": "true"}), ""),
        *((option, no_messages(shape)) for option in message_options(shape)),
        (Option("bf16-sums", "sums", "gradients summed as bf16", {"parallel.reduce_dtype": "bfloat16"}),
         no_messages(shape)),
        (Option("fp16-sums", "sums", "gradients summed as fp16", {"parallel.reduce_dtype": "float16"}),
         no_messages(shape)),
        (Option("reader", "loader", "a reader process a rank", {"data.workers": "1"}), ""),
        (Option("dali", "loader", "DALI", {"data.loader": "dali"}), ""),
    ]:  # fmt: skip
        if reason:
            missing.append(Missing(option.label, reason))
        else:
            options.append(option)
    layouts, none = rank_options(machine, shape)
    return [*options, *layouts], [*missing, *none]


def no_messages(shape: Shape) -> str:
    """Why messages cannot be measured; empty if they can."""
    return "one rank sends nothing; give --ranks 2 or more" if shape.ranks == 1 else ""


def message_options(shape: Shape) -> list[Option]:
    """Gradients sent while the backward pass runs, in buckets of several sizes and in both orders.

    Sizes and order matter only if gradients are sent as they become ready, so these are measured with overlap.
    """
    overlap = {"parallel.overlap": "true"}
    sizes = {1: shape.gradient_bytes, 4: max(1, -(-shape.gradient_bytes // 4))}
    options = [Option("overlap", "messages", "overlap", overlap)]
    for buckets, size in sizes.items():
        if shape.buckets != buckets:
            words = "one bucket" if buckets == 1 else f"{buckets} buckets"
            options.append(Option(f"overlap-{buckets}", "messages", f"overlap, {words}",
                                  {**overlap, "parallel.bucket_bytes": str(size)}))  # fmt: skip
    last = options[-1] if shape.buckets == 1 else options[0]
    reverse = {**last.settings, "parallel.bucket_order": "forward"}
    return [*options, Option(f"{last.name}-forward", "messages", f"{last.label}, forward", reverse)]


def rank_options(machine: Machine, shape: Shape) -> tuple[list[Option], list[Missing]]:
    """Other numbers of ranks on the same cores, each with its share of the global batch."""
    label = "other numbers of ranks"
    if machine.accelerators:
        return [], [Missing(label, "each rank has an accelerator to itself")]
    numbers = [
        ranks for ranks in range(1, machine.cores + 1)
        if ranks != shape.ranks and machine.cores % ranks == 0 and shape.global_batch_size % ranks == 0
    ]  # fmt: skip
    if not numbers:
        why = f"none divides both {counted(machine.cores, 'core')} and a global batch of {shape.global_batch_size}"
        return [], [Missing(label, why)]
    return [
        Option(f"ranks-{ranks}", "ranks",
               f"{counted(ranks, 'rank')} x {counted(machine.cores // ranks, 'thread')}", {}, ranks)
        for ranks in numbers
    ], []  # fmt: skip


def keep(options: Sequence[Option], held: Mapping[str, str]) -> tuple[list[Option], list[Missing]]:
    """The options whose settings the command leaves open, and the others with the setting that it fixes."""
    kept, missing = [], []
    for option in options:
        fixed = [key for key in option.settings if key in held]
        if fixed:
            missing.append(Missing(option.label, f"{fixed[0]} is {held[fixed[0]]} in all runs, as the command says"))
        else:
            kept.append(option)
    return kept, missing


def left_out(options: Sequence[Option]) -> tuple[list[Option], str]:
    """The options that do nothing beside the others, and why."""
    factors, reason = OF_MESSAGES, "one rank sends nothing"
    if not any(option.ranks == 1 for option in options):
        factors, reason = ("messages",), "a step with a CUDA graph sends its gradients after the backward pass"
        if not any(option.factor == "graph" for option in options):
            return [], ""
    return [option for option in options if option.factor in factors], reason


def combined(options: Sequence[Option]) -> Option:
    """Options of several factors as one, without those that do nothing beside the others."""
    unused, _ = left_out(options)
    used = [option for option in options if option not in unused]
    ranks = next((option.ranks for option in options if option.ranks is not None), None)
    settings = {key: value for option in used for key, value in option.settings.items()}
    name = "+".join(option.name for option in used)
    return Option(
        f"together-{name}", "together", f"together: {', '.join(option.label for option in used)}", settings, ranks
    )
