"""What the input of a prediction rests on: sentences below the tables."""

from __future__ import annotations

from hpcbench.prediction.forecast import Forecast
from hpcbench.prediction.input_limits import DECODING_BYTES_PER_S, GB, STATED, InputLimits
from hpcbench.prediction.platforms import Fact
from hpcbench.prediction.predictions import Predicted
from hpcbench.prediction.tables import made, on_nodes


def input_notes(prediction: Predicted) -> list[str]:
    """Where samples are read from, which of them a node has no room for, and what is assumed of decoding and links."""
    if prediction.request.input_gb_s is not None:
        return []
    limits = [(one, one.training.input_limits) for one in made(prediction) if one.training.input_limits is not None]
    groups: dict[tuple[str | None, Fact | None, bool], list[Forecast]] = {}
    for one, limit in limits:
        if limit.storage is not None or limit.unheld[1] == 0:
            groups.setdefault((limit.storage, limit.storage_bytes_per_s, limit.is_timed), []).append(one)
    file = f"{prediction.request.machine.name}.yaml"
    sentences = [storage_note(on_nodes(ones), *group, file) for group, ones in groups.items()]
    short = [(one, limit) for one, limit in limits if limit.unheld[1] > 0]
    if short:
        sentences.append(
            f"Input: no room on {on_nodes([one for one, _ in short])} for {most_unheld(short)} of the samples, by the "
            "form in which they are kept; these are taken to come again in each epoch, at the rate of the staging."
        )
    return [*sentences, *decoding_notes(prediction, [limit for _, limit in limits])]


def storage_note(nodes: str, storage: str | None, rate: Fact | None, is_timed: bool, file: str) -> str:
    """Where some sizes read their samples from, and how fast."""
    if storage is None or rate is None:
        return f"Input: the memory of {nodes} holds the data; reading it is taken not to limit."
    if is_timed:
        return (
            f"Input: {nodes} read at {rate.central / GB:g} GB/s each, the rate of {storage} in {file}, within a factor "
            f"of {STATED:g}; --input-gb-s gives another."
        )
    return (
        f"Input: {nodes} read from {storage}, whose rate is not in {file}; {rate.low / GB:.3g} to "
        f"{rate.high / GB:.3g} GB/s each are assumed, within the interval. --input-gb-s gives the rate."
    )


def most_unheld(short: list[tuple[Forecast, InputLimits]]) -> str:
    """``0 to 73 %``: over the sizes, and over the forms in which samples may be kept."""
    low, high = min(limit.unheld[0] for _, limit in short), max(limit.unheld[1] for _, limit in short)
    return f"{100 * low:.0f} to {100 * high:.0f} %"


def decoding_notes(prediction: Predicted, limits: list[InputLimits]) -> list[str]:
    """What is assumed of decoding and of the link to an accelerator; nothing where runs measured steps with input."""
    if not limits or limits[0].decoding_bytes_per_s is None:
        return []
    parts = []
    if made(prediction)[0].training.work.decoding_s is None:
        low, high = DECODING_BYTES_PER_S.low / GB, DECODING_BYTES_PER_S.high / GB
        measured = "--characterization of a run with --data.root has it measured"
        parts.append(f"{low:g} to {high:g} GB/s for the decoding by a core ({measured})")
    link = limits[0].link_bytes_per_s
    if link is not None and not link.known:
        parts.append(f"{link.low / GB:.3g} to {link.high / GB:.3g} GB/s for the link from a node to an accelerator")
    return [f"Input: {' and '.join(parts)} are assumed, within the interval."] if parts else []
