"""What a reader must know about predicted numbers: sentences below the tables."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hpcbench.measure.log_rules import PUBLISHED_TARGETS
from hpcbench.prediction.changes import best_change
from hpcbench.prediction.held_out_table import APART
from hpcbench.prediction.input_limits import GB
from hpcbench.prediction.input_notes import input_notes
from hpcbench.prediction.predictions import Predicted
from hpcbench.prediction.request import FITTED_TO
from hpcbench.prediction.tables import change_words, made, on_nodes, span
from hpcbench.results import units

BOUNDED = ("network_gb_s", "accelerator_link_gb_s", "cores")
"""Fields that other machines bound where a file lacks them."""


def notes(prediction: Predicted) -> list[str]:
    """The sentences, the most general first."""
    words = dict.fromkeys(one.training.epochs.words for one in made(prediction))
    refused = [size for size in prediction.sizes if size.forecast is None]
    parts = (machine_notes, message_notes, staging_notes, input_notes, room_notes)
    return [
        *(f"Epochs: {each}." for each in words),
        *target_notes(prediction),
        *chosen_notes(prediction),
        *(sentence for part in parts for sentence in part(prediction)),
        *(f"{units.counted(size.nodes, 'node')}: {size.refusal}." for size in refused),
        best_note(prediction),
    ]


def target_notes(prediction: Predicted) -> list[str]:
    """Where runs of your own reached another target than the published one."""
    request = prediction.request
    published = PUBLISHED_TARGETS.get(request.application)
    if request.own_target is None or published is None or math.isclose(request.own_target, published):
        return []
    return [f"Target: {units.score(request.own_target)}, of your own runs; the published one is {published:g}."]


def chosen_notes(prediction: Predicted) -> list[str]:
    """Where the batch is the best of several, each known from few runs of your own."""
    if not prediction.request.own_runs:
        return []
    counts = sorted({size.chosen_among for size in prediction.sizes if size.chosen_among > 1})
    return [
        f"Batch: the fastest of {count} at "
        f"{nodes_words([size.nodes for size in prediction.sizes if size.chosen_among == count])}, each known from its "
        "own few runs; the one that is chosen tends to be one whose runs were lucky."
        for count in counts
    ]


def nodes_words(sizes: Sequence[int]) -> str:
    """``1 node``, ``8, 16 nodes``."""
    return ", ".join([*(f"{nodes:,}" for nodes in sizes[:-1]), units.counted(sizes[-1], "node")])


def machine_notes(prediction: Predicted) -> list[str]:
    """What is unknown of the machine, and where the model is beyond what it was fitted to."""
    platform = made(prediction)[0].training.platform
    sentences = []
    bounded = [name for name in platform.missing if name in BOUNDED]
    if bounded:
        sentences.append(
            f"Unknown in {platform.name}.yaml: {', '.join(bounded)}; taken from the least to the most of "
            "similar machines, within the interval."
        )
    if platform.model != "A100" and FITTED_TO in platform.accelerator and not prediction.request.calibration.runs:
        sentences.append(f"The model is fitted to A100; {platform.model} is beyond that.")
    if platform.name == APART:
        sentences.append(
            f"The model is experimental for {platform.title}: its published steps get shorter with its size, and "
            "assuming no change of the step time is the better rule there (docs/prediction.md)."
        )
    return sentences


def message_notes(prediction: Predicted) -> list[str]:
    """What the time of messages rests on: a characterisation, or else an assumed latency."""
    messages = prediction.request.calibration.messages
    several = [one for one in made(prediction) if one.training.ranks > 1]
    if not several or (messages is None and not prediction.interconnect):
        return []
    modelled = several
    sentences = []
    if messages is not None:
        modelled = [one for one in several if not messages.covers(one.training.nodes)]
        if len(modelled) < len(several):
            sentences.append(f"Messages: by the curves and the overlap that were measured {messages.link}.")
    if modelled:
        where = "" if messages is None else f" of {on_nodes(modelled)}"
        sentences.append(
            f"Messages{where}: published entries do not determine their latency; it is assumed to be 20 us a hop, of "
            "one message in each step. A --characterization on several nodes has both measured."
        )
    return sentences


def staging_notes(prediction: Predicted) -> list[str]:
    """How little is known about the staging where nothing measured it."""
    if prediction.request.calibration.staged:
        return []
    last = made(prediction)[-1]
    plan = last.training.planned_staging
    if plan is not None:
        assert prediction.request.probe is not None
        return [
            f"Staging: by the plan of each size and the probe of {units.counted(plan.probed_nodes, 'node')} from "
            f"{prediction.request.probe.source}, whose source is taken to give from as much as then to as much for "
            f"each node; limited by {' or '.join(plan.limits)}; {span(last.staging)} minutes on "
            f"{units.counted(last.training.nodes, 'node')} (80 % interval)."
        ]
    return [
        "Staging: neither a run nor a probe timed the storage, and sites differ much with the same method; "
        f"{span(last.staging)} minutes on {units.counted(last.training.nodes, 'node')} (80 % interval)."
    ]


def room_notes(prediction: Predicted) -> list[str]:
    """Sizes whose part of the dataset does not fit the storage that the machine's file gives for a node."""
    rooms = [
        (storage.gb * GB, storage.path) for storage in prediction.request.machine.storage if storage.gb and storage.path
    ]
    if not rooms:
        return []
    room, path = max(rooms)
    sentences = []
    for one in made(prediction):
        nodes = one.training.nodes
        landed, most = (units.prefixed(value, "B") for value in (one.training.work.landed_on_node(nodes), room))
        if one.training.work.landed_on_node(nodes) > room:
            sentences.append(
                f"{units.counted(nodes, 'node')}: {landed} of the dataset land on each, more than the {most} of {path}."
            )
    return sentences


def best_note(prediction: Predicted) -> str:
    """What helps most at the largest size."""
    best = [best_change(moved) for moved in prediction.improvements if moved is not None][-1]
    nodes = units.counted(made(prediction)[-1].training.nodes, "node")
    return f"On {nodes} {best[0]} helps most: {change_words(best[1])}."
