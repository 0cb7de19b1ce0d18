"""Finds numbers outside their bounds, and settings that cannot run together, before any file is touched."""

from __future__ import annotations

from hpcbench import plugins
from hpcbench.config.bounds import check_bounds
from hpcbench.config.optimizers import OPTIMIZERS, options_of
from hpcbench.config.schema import OptimConfig, RunConfig, ScheduleConfig
from hpcbench.suggest import suggest
from staging.bounds import shown
from staging.errors import InputError
from staging.units import counted

DESCENTS = ("cosine", "polynomial", "inverse_sqrt")
"""Shapes that fall to ``eta_min`` in ``t_max``."""


def validate_run(config: RunConfig) -> None:
    """Check the parts that every application shares. Raises ``InputError``."""
    check_bounds(config)
    validate_evaluations(config)
    if config.optim.scaling != "none" and config.optim.base_batch_size is None:
        raise InputError(
            f"optim.scaling {config.optim.scaling} needs optim.base_batch_size, the global batch size of optim.lr"
        )
    validate_options(config.optim)
    validate_trust_ratios(config)
    validate_measurements(config.measure.extra)
    validate_schedule(config.schedule, config.optim.lr if config.optim.scaling == "none" else None)
    if config.submission.ruleset != "3.0.0" and config.staging.destination and not config.staging.timed:
        raise InputError(
            f"staging.timed is false, but rules {config.submission.ruleset} count staging in the scored time; "
            "set staging.timed true or submission.ruleset 3.0.0"
        )
    if not config.parallel.overlap and config.parallel.shard_states:
        raise InputError(
            "parallel.overlap false does not go with parallel.shard_states, where FSDP2 sends gradients as it needs; "
            "leave one of them"
        )
    if config.parallel.reduce_dtype != "gradient" and config.parallel.shard_states:
        raise InputError(
            f"parallel.reduce_dtype {config.parallel.reduce_dtype} does not go with parallel.shard_states, where FSDP2 "
            "sums gradients; leave one of them"
        )
    validate_overlap(config)
    validate_slabs(config)
    validate_shards(config)
    validate_graph(config)


def validate_graph(config: RunConfig) -> None:
    """Refuse batches of several sizes, and messages within the passes, if a graph captures the passes."""
    train, parallel = config.train, config.parallel
    if not train.cuda_graph:
        return
    if config.data.last_batch == "keep":
        raise InputError("train.cuda_graph needs batches of one size; set data.last_batch drop")
    shares, splits = train.batchnorm_group_size, parallel.spatial
    for what, sends, without in (
        (f"batch norm over train.batchnorm_group_size ({shares}) ranks", shares > (parallel.simulated_ranks or 1), "1"),
        (f"parallel.spatial ({splits})", {*splits.split("x")} != {"1"}, "1"),
        ("parallel.shard_states (true)", parallel.shard_states, "false"),
    ):
        if sends:
            raise InputError(
                f"train.cuda_graph captures no messages, which {what} needs; set it to {without}, or cuda_graph false"
            )


def validate_evaluations(config: RunConfig) -> None:
    """Check how often an epoch is evaluated; how many steps it has is not known yet."""
    number = config.train.evaluations_per_epoch
    if number > 1 and config.staging.overlap:
        raise InputError(
            f"train.evaluations_per_epoch ({number}) needs the validation samples while staging.overlap still stages; "
            "set it to 1, or staging.overlap false"
        )


def validate_overlap(config: RunConfig) -> None:
    """Check the settings that staging during the first epoch needs or excludes."""
    staging = config.staging
    if not staging.overlap:
        return
    if not staging.destination:
        raise InputError("staging.overlap needs staging.destination, a folder on each node")
    if not staging.timed:
        raise InputError("staging.overlap stages inside the scored time; set staging.timed true, or overlap false")
    if config.data.loader == "dali":
        raise InputError(
            "staging.overlap does not go with data.loader dali, which opens all files before the first batch; "
            "set data.loader torch, or overlap false"
        )


def validate_slabs(config: RunConfig) -> None:
    """Check the settings that slabs need or exclude."""
    staging = config.staging
    if not staging.slabs:
        return
    if not staging.destination:
        raise InputError("staging.slabs needs staging.destination, a folder on each node")
    for key, value, wanted in (
        ("staging.placement", staging.placement, "replicate"),
        ("staging.overlap", staging.overlap, False),
        ("data.loader", config.data.loader, "torch"),
    ):
        if value != wanted:
            raise InputError(f"staging.slabs does not go with {key} {value}; set it {wanted}, or staging.slabs false")


def validate_shards(config: RunConfig) -> None:
    """Check the settings that shards need or exclude."""
    staging = config.staging
    if staging.reshuffle and staging.placement != "shard":
        raise InputError("staging.reshuffle moves shards; set staging.placement shard, or reshuffle false")
    if staging.contiguous and staging.placement != "shard":
        raise InputError("staging.contiguous is a way to cut shards; set staging.placement shard, or contiguous false")
    if staging.contiguous and staging.reshuffle:
        raise InputError("staging.reshuffle draws shards, and staging.contiguous shards are not drawn; set one false")
    if staging.placement != "shard":
        return
    if not staging.destination and config.parallel.simulated_nodes is None:
        raise InputError(
            "staging.placement shard needs staging.destination, a folder on each node, or parallel.simulated_nodes"
        )
    if not staging.destination and staging.transform:
        raise InputError(
            f"staging.placement shard without staging.destination moves no file; leave out staging.transform "
            f"{staging.transform}"
        )
    if staging.destination and config.parallel.simulated_ranks is not None:
        raise InputError(
            "staging.placement shard with parallel.simulated_ranks simulates the nodes, too; leave out "
            "staging.destination and set parallel.simulated_nodes"
        )


def validate_options(optim: OptimConfig) -> None:
    """Check the options of the optimizer, with its own defaults for unset ones."""
    low, high = options_of(optim).get("trust_bounds", (0.0, 1.0))
    if low > high:
        raise InputError(f"optim.trust_bounds ([{low}, {high}]) must be two numbers from 0 on, the smaller one first")


def validate_trust_ratios(config: RunConfig) -> None:
    """Refuse to record trust ratios with an optimizer that has none."""
    every, name = config.train.trust_ratios_every, config.optim.name
    have = [info.name for info in OPTIMIZERS.values() if "trust_bounds" in info.options]
    if every and name not in have:
        raise InputError(
            f"train.trust_ratios_every ({every}) needs an optimizer with trust ratios, not {name}; set optim.name "
            f"to {', '.join(have[:-1])} or {have[-1]}, or train.trust_ratios_every to 0"
        )


def validate_measurements(asked: list[str]) -> None:
    """Check that measurements from other packages are registered, each named once."""
    known = plugins.names(plugins.MEASUREMENTS)
    for name in asked:
        if name not in known:
            hint = suggest(name, known) if known else "no package registers one; install its package"
            raise InputError(f"unknown measurement measure.extra '{shown(name)}'; {hint}")
        if asked.count(name) > 1:
            raise InputError(f"measure.extra has '{name}' twice; name it once")


def validate_schedule(schedule: ScheduleConfig, peak: float | None) -> None:
    """Check the schedule, also against its peak if that is known before the batch is."""
    lowest = "warmup_start_lr" if schedule.warmup else "", "eta_min" if schedule.shape in DESCENTS else ""
    for key in filter(None, lowest):
        if peak is not None and getattr(schedule, key) > peak:
            raise InputError(f"schedule.{key} ({getattr(schedule, key)}) must be at most the peak, optim.lr ({peak})")
    if len(schedule.milestones) != len(schedule.factors):
        raise InputError(
            f"schedule.milestones has {counted(len(schedule.milestones), 'value')} and schedule.factors "
            f"{len(schedule.factors)}; give one factor per milestone"
        )
    if sorted(set(schedule.milestones)) != schedule.milestones:
        raise InputError(f"schedule.milestones ({schedule.milestones}) must grow from one to the next")
    if schedule.shape == "multistep" and not schedule.milestones:
        raise InputError("schedule.shape multistep needs schedule.milestones and schedule.factors")
    if schedule.shape in DESCENTS and schedule.t_max < 1:
        raise InputError(f"schedule.t_max ({schedule.t_max}) must be at least 1 for schedule.shape {schedule.shape}")
    if schedule.reference_quirks:
        validate_quirks(schedule)


def validate_quirks(schedule: ScheduleConfig) -> None:
    """Refuse what the references do not have."""
    if schedule.shape in ("polynomial", "inverse_sqrt"):
        raise InputError(
            f"schedule.reference_quirks does not go with schedule.shape {schedule.shape}, which no reference has"
        )
    if schedule.shape == "constant" and schedule.unit == "step":
        raise InputError(
            "schedule.reference_quirks does not go with schedule.shape constant in schedule.unit step: DeepCAM's "
            "reference has none; set one of the three otherwise"
        )
    if schedule.warmup and schedule.warmup_unit not in (None, schedule.unit):
        raise InputError(
            f"schedule.reference_quirks does not go with schedule.warmup_unit {schedule.warmup_unit} beside "
            f"schedule.unit {schedule.unit}; the references have one unit"
        )
