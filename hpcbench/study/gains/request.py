"""From the command line of a gains study to its definition: everything is checked before a run starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from hpcbench.application import Application
from hpcbench.config.read_yaml import read_yaml
from hpcbench.config.resolve import resolve
from hpcbench.config.schema import RunConfig
from hpcbench.config.validate import validate_run
from hpcbench.study.gains.definition import Gains
from hpcbench.study.gains.machine import find_machine
from hpcbench.study.gains.options import PLAIN, Machine, Missing, Option, Shape, candidates, keep
from hpcbench.study.gains.plan import PLAIN_OPTION, PlannedRun, run_settings
from hpcbench.study.preset_values import preset_values, study_config
from hpcbench.study.scaling.request import dotted as dotted_keys
from hpcbench.suggest import suggest
from hpcbench.train.build import check_batch, open_data
from staging.errors import InputError
from staging.units import counted

DECIDED = {
    "train.seed": "--repeats gives each repeat its own", "train.max_steps": "use --steps",
    "train.target": "all runs train for --steps", "train.accumulation": "leave it out",
    "parallel.devices": "use --ranks", "parallel.threads": "ranks share the cores",
    "parallel.simulated_ranks": "leave it out", "parallel.simulated_nodes": "leave it out",
    "parallel.spatial": "leave it out", "data.last_batch": "all steps have whole batches",
    "train.checkpoint_every": "leave it out", "train.baselines": "leave it out", "train.page": "leave it out",
}  # fmt: skip
"""Settings that the study itself decides, and what to do instead."""
USUAL_RANKS = 2
"""Ranks of the baseline on a processor, so that there are messages."""


@dataclass(frozen=True)
class GainsRequest:
    """The options of a command."""

    preset: str
    steps: int
    repeats: int
    ranks: int | None = None
    only: str = ""
    """Names of options, separated by commas; empty: all."""
    without: str = ""
    """The same, for options that are left out."""
    files: tuple[Path, ...] = ()
    command: str = ""


def define(application: Application, asked: GainsRequest, settings: Mapping[str, str]) -> Gains:
    """The definition of the study. Raises ``InputError`` in one line for what cannot run; changes nothing on disk."""
    held = held_settings(asked.files, settings)
    config = resolve(application, asked.preset, list(asked.files), dict(settings))
    warm = config.measure.warmup_steps
    if asked.steps <= warm:
        raise InputError(
            f"--steps ({asked.steps}) must be more than the {counted(warm, 'step')} of the warm-up "
            "(measure.warmup_steps), which no figure counts; raise it"
        )
    machine, _ = find_machine(config.parallel.accelerator == "cpu")
    ranks = checked_ranks(asked.ranks, machine)
    study = Gains(
        application=application.name, preset=asked.preset, cores=machine.cores, ranks=ranks,
        global_batch_size=config.train.local_batch_size * ranks, steps=asked.steps, repeats=asked.repeats, options=(),
        settings={key: value for key, value in PLAIN.items() if key not in held} | dict(settings),
        files=tuple(str(path) for path in asked.files), accelerators=machine.accelerators,
        preset_values=preset_values(application, asked.preset),
        commands=(asked.command,) if asked.command else (),
    )  # fmt: skip
    plain = run_config(application, study, PLAIN_OPTION)
    check_batch(plain, len(open_data(application, plain)[0]), ranks)
    shape = Shape(ranks, study.global_batch_size, gradient_bytes(application, plain), plain.parallel.bucket_bytes)
    options, missing = candidates(machine, shape)
    options, unasked = named(options, asked)
    options, fixed = keep(options, held)
    options, refused = runnable(application, study, options)
    if not options:
        why = "; ".join(f"{unmeasured.label}: {unmeasured.reason}" for unmeasured in (*fixed, *refused))
        raise InputError(f"no option is left to measure ({why}); change --only, --without or the settings")
    return replace(study, options=tuple(options), missing=(*missing, *fixed, *refused, *unasked))


def held_settings(files: Sequence[Path], settings: Mapping[str, str]) -> dict[str, str]:
    """The settings that the command fixes, as it gives them. Raises ``InputError`` for those that the study decides."""
    held = {key: f"as {path} has it" for path in files for key in dotted_keys(read_yaml(path))} | dict(settings)
    for key in held:
        if key in DECIDED:
            raise InputError(f"{key} is for the study to set; {DECIDED[key]}")
    return held


def checked_ranks(asked: int | None, machine: Machine) -> int:
    """Ranks of the baseline: by default one per accelerator, or on a processor two if it has as many cores.

    Raises ``InputError`` if ``asked`` is more than the machine has.
    """
    if machine.accelerators:
        if asked is not None and asked > machine.accelerators:
            raise InputError(
                f"--ranks ({asked}) is more than the {counted(machine.accelerators, 'accelerator')} of this machine; "
                "lower it, or set --parallel.accelerator cpu"
            )
        return asked or machine.accelerators
    if asked is not None and asked > machine.cores:
        raise InputError(
            f"--ranks ({asked}) is more than the {counted(machine.cores, 'core')} of this machine; lower it"
        )
    return asked or min(USUAL_RANKS, machine.cores)


def gradient_bytes(application: Application, config: RunConfig) -> int:
    """Bytes of the gradients of all parameters; nothing is allocated."""
    with torch.device("meta"):
        model: torch.nn.Module = application.module("model").build_model(config)
    return sum(
        parameter.numel() * parameter.element_size() for parameter in model.parameters() if parameter.requires_grad
    )


def named(options: Sequence[Option], asked: GainsRequest) -> tuple[list[Option], list[Missing]]:
    """The options that ``--only`` and ``--without`` keep, and the others. Raises ``InputError`` for unknown names."""
    names = [option.name for option in options]
    lists = {}
    for flag, text in (("--only", asked.only), ("--without", asked.without)):
        lists[flag] = [part.strip() for part in text.split(",") if part.strip()]
        for name in lists[flag]:
            if name not in names:
                raise InputError(f"{flag}: '{name}' is no option that this machine can do; {suggest(name, names)}")
    wanted = lists["--only"] or names
    kept = [option for option in options if option.name in wanted and option.name not in lists["--without"]]
    return kept, [Missing(option.label, "left out by the command") for option in options if option not in kept]


def runnable(
    application: Application, study: Gains, options: Sequence[Option]
) -> tuple[list[Option], list[Missing]]:  # fmt: skip
    """The options whose settings can run, and the others with the reason why not."""
    accepted, refused = [], []
    for option in options:
        try:
            config = run_config(application, study, option)
            if option.factor == "loader":
                open_data(application, config)
        except InputError as error:
            refused.append(Missing(option.label, str(error)))
        else:
            accepted.append(option)
    return accepted, refused


def run_config(application: Application, study: Gains, option: Option) -> RunConfig:
    """The configuration of a run of the option. Raises ``InputError`` if it cannot run."""
    settings = run_settings(study, PlannedRun(option, 1))
    config = study_config(study, settings, study.files)
    validate_run(config)
    config.validate()
    return config
