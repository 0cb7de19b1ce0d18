"""What a page must say of where the time went and how it was run, computed from the tables of the run."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from hpcbench.results import units

from .page_tables import Claims, Tables

BUSY = {"list": "listing the source", "read": "reading the source", "verify": "reading again what landed",
        "write": "writing, with checksums and transform", "commit": "flushing to the device"}  # fmt: skip
PHASES = {"input_wait": "input wait"}
KINDS = {"gradients": "gradients", "halo": "halos", "batch_norm": "batch norm", "sharding": "sharded states",
         "noise_scale": "noise scale", "losses": "losses"}  # fmt: skip


def precision(t: Tables) -> str:
    """What the run computed in: ``auto`` is bfloat16 on a processor that multiplies it fast."""
    asked = str(t.config["train"]["precision"])
    if asked != "auto":
        return asked
    fast = {"amx_bf16", "avx512_bf16"} & set(Path("/proc/cpuinfo").read_text(encoding="utf-8").split())
    return "bf16-mixed" if fast else "32-true"


def phases(t: Tables) -> Claims:
    """Of one rank what its attempts add up to, of several the median and the slowest."""
    claims: Claims = {}
    foot = "phase-table/wall time"
    if not t.summed:
        totals = {name: sum(each["phases_s"][name] for each in t.attempts) for name in t.attempts[0]["phases_s"]}
        assert sum(totals.values()) == pytest.approx(t.wall_s, abs=1e-6)
        for name, seconds in totals.items():
            if seconds > 0:
                claims |= cells(f"phase-table/{PHASES.get(name, name)}", seconds=seconds, share=seconds / t.wall_s)
        return claims | {f"{foot}/seconds": f"{t.wall_s:,.3f}", f"{foot}/share": "100.0 %"} | clock_of(t)
    wall = t.ranks["run_wall_s"]
    for name in (*t.attempts[0]["phases_s"], "wall"):
        seconds = t.ranks[f"run_{name}_s"]
        if seconds.max() > 0 and name != "finalize":
            key = f"phase-table/{ {'wall': 'wall time'}.get(name, PHASES.get(name, name)) }"
            claims |= cells(key, **{"median s": seconds.median(), "share": seconds.median() / wall.median()})
            claims |= slowest(t, key, seconds)
    for name, label in KINDS.items():
        seconds = t.ranks[f"run_{name}_s"]
        if seconds.max() > 0:
            claims |= cells(f"message-table/{label}", **{"median s": seconds.median()})
            claims |= slowest(t, f"message-table/{label}", seconds)
    late = units.duration(t.wall_s - wall[0])
    doing = "" if t.aborted else ", in which it computed baselines and drew plots,"
    claims["how-fast/note 2"] = f"The last {late} of rank 0{doing} are not in the wall time of this table."
    finalize_s = sum(each["phases_s"]["finalize"] for each in t.attempts)
    claims["phase-table/finalize/slowest s"] = f"{finalize_s:,.3f}"
    claims["phase-table/finalize/slowest rank"] = f"rank {t.ranks['rank'][0]} on {t.ranks['node'][0]}, alone"
    return claims | clock_of(t)


def cells(key: str, **values: float) -> Claims:
    form = {"share": units.percent}
    return {f"{key}/{name}": form.get(name, lambda value: f"{value:,.3f}")(value) for name, value in values.items()}


def slowest(t: Tables, key: str, seconds: pd.Series) -> Claims:
    rank = t.ranks.iloc[int(seconds.argmax())]
    found = cells(key, **{"slowest s": seconds.max()})
    if seconds.nunique() > 1:
        found[f"{key}/slowest rank"] = f"rank {rank['rank']} on {rank['node']}"
    return found


def clock_of(t: Tables) -> Claims:
    process, gaps = ("processes of all attempts", ", gaps included") if t.gaps else ("process", "")
    text = f"of the {process}; the clock of the rules ran for {t.clock}, from the first touch of the data to the end"
    return {"phase-table/wall time/what it holds": text + gaps}


def attempts(t: Tables) -> Claims:
    if not t.gaps:
        return {}
    claims: Claims = {}
    for number, each in enumerate(t.attempts, 1):
        key, started = f"attempts-table/{number}", datetime.fromtimestamp(each["started"], UTC)
        claims[f"{key}/attempt"] = str(number)
        claims[f"{key}/started (UTC)"] = f"{started.day} {started:%B, %H:%M:%S}"
        claims[f"{key}/wall time, s"] = f"{each['wall_s']:,.3f}"
        first, last = each["first_step"] + 1, each["last_step"]
        claims[f"{key}/optimizer steps"] = f"{first} to {last}" if first <= last else "none"
        if number > 1:
            claims[f"{key}/gap before, s"] = f"{t.gaps[number - 2]:,.3f}"
    span = t.attempts[-1]["ended"] - t.attempts[0]["started"]
    assert sum(t.gaps) + t.wall_s == pytest.approx(span, abs=1e-6)
    claims["attempts-table/all/gap before, s"] = f"{sum(t.gaps):,.3f}"
    claims["attempts-table/all/wall time, s"] = f"{t.wall_s:,.3f}"
    claims["attempts-table/all/optimizer steps"] = f"together {span:,.3f} s, from the first start to the last end"
    return claims


def use(t: Tables) -> Claims:
    claims: Claims = {}
    if not t.aborted:
        sample, rate = t.flops("training"), t.warm_rate
        assert rate is not None
        claims["use/model FLOP/s"] = (
            f"{units.prefixed(rate * sample, 'FLOP/s')}: {units.significant(rate)} samples/s after the warm-up x "
            f"{units.prefixed(sample, 'FLOP')}/sample"
        )
        if t.config["measure"]["probe"]:
            peak = t.ranks["gemm_flops"].sum()
            ranks = f", the sum over {t.world} ranks" if t.world > 1 else ""
            mean = ", the mean over its attempts" if t.gaps else ""
            claims["use/peak FLOP/s"] = f"{units.prefixed(peak, 'FLOP/s')} in float32 matrix products{ranks}{mean}"
            claims["use/FLOP/s utilization"] = units.percent(rate * sample / peak) + (
                "; the peak is of float32, and the run trained in bfloat16 (bf16-mixed)"
                if precision(t) == "bf16-mixed"
                else ""
            )
    if t.warm_rate is not None:
        busy = t.ranks["cpu_s"] / (t.ranks["wall_s"] * t.ranks["threads"])
        text = f"{units.percent(busy.median())} of 1 compute thread, "
        lowest = t.ranks.iloc[int(busy.argmin())]
        text += (
            f"the median over ranks; least {units.percent(busy.min())}, rank {lowest['rank']} on {lowest['node']}"
            if t.world > 1
            else "in the steps after the warm-up"
        )
        claims["use/processors busy"] = text
    if not t.ranks.empty and t.ranks["device_sampled_s"].notna().all():
        claims["use/accelerator busy"] = accelerators(t)
    return claims


def accelerators(t: Tables) -> str:
    """What the driver of each rank's accelerator has told, over the time in which it was asked."""
    share = t.ranks["device_busy_s"] / t.ranks["device_sampled_s"]
    text = f"{units.percent(share.median())} of the time on the clock"
    if t.world == 1:
        return text
    lowest = t.ranks.iloc[int(share.argmin())]
    of = f"rank {lowest['rank']} on {lowest['node']}"
    return f"{text}, the median over ranks; least {units.percent(share.min())}, {of}"


def energy(t: Tables) -> Claims:
    """Joules of all attempts, of which one that did not end in order has those up to its last checkpoint."""
    joules = [each["energy_j"] for each in t.attempts]
    if None in joules:
        return {}
    sources, notes = ({each[f"energy_{name}"] for each in t.attempts} for name in ("source", "note"))
    (source,), (note,) = sources, notes
    killed = sum(not each["energy_to_end"] for each in t.attempts)
    note += f", over {len(joules)} attempts" if len(joules) > 1 else ""
    alone = ", up to the last checkpoint" if killed else ""
    note += f" without what {killed} took after the last checkpoint" if killed and len(joules) > 1 else alone
    return {"how-it-was-run/energy": f"{units.prefixed(sum(joules), 'J')} ({source}: {note})"}


def checkpoints(t: Tables) -> Claims:
    """A run writes one after every epoch, at its target, and at the signal."""
    count = len(t.epochs) + any(each["cause"] == "signal" for each in t.attempts)
    if not count:
        return {}
    written = [save for each in t.attempts for save in each["saves"] if save["write_bytes"]]
    stalls = [save["stall_s"] for save in written]
    assert len(stalls) == count
    assert sum(save["write_bytes"] for save in written) == t.checkpoint("write_bytes")
    assert sum(stalls) == pytest.approx(t.checkpoint("stall_s"))
    held = f"held the training for {units.duration(sum(stalls) / count)}"
    one, several = f"it {held}", f"each {held} on average, at most {units.duration(max(stalls))}"
    claims = {"checkpoints": f"{count} written; {one if count == 1 else several}"}
    for done, name in (("written", "write"), ("read", "read")):
        size, seconds = t.checkpoint(f"{name}_bytes"), t.checkpoint(f"{name}_s")
        if size:
            per_s = units.size(size / seconds)
            claims[f"{done} with"] = f"{per_s}/s: {units.size(size)} in {units.duration(seconds)}"
    return {f"checkpoints/{key}": text for key, text in claims.items()}


def setup(t: Tables) -> Claims:
    """Everything about how the run was set up and on what, as far as it has numbers."""
    files = [t.folder.parent / "data" / "train", t.folder.parent / "data" / "validation"]
    training, validation = (len([path for path in folder.iterdir() if path.is_file()]) for folder in files)
    assert (training, validation) == (24, 10)
    ranks = f"{t.world} on 1 node"
    if t.config["parallel"]["spatial"] != "1":
        ranks = f"{t.world} as {t.world // 2} x 2 (data x spatial) on 1 node"
    if simulated := t.config["parallel"]["simulated_ranks"]:
        ranks = f"1 simulating {simulated} on 1 node"
    command = t.environment["command"]
    program = "hpcbench" if command[0].endswith("/hpcbench/__main__.py") else Path(command[0]).name
    found = {
        "seed": str(t.logged("seed")["value"]), "precision": f"{precision(t)}, channels last",
        "peak learning rate": units.significant(t.config["optim"]["lr"]), "training samples": str(training),
        "validation samples": str(validation), "division and rules": "open, MLPerf HPC 3.0.0", "ranks": ranks,
        "threads per rank": str(t.config["parallel"]["threads"]), "memory": t.system["host_memory_capacity"],
        "framework": t.system["framework"], "operating system": t.system["operating_system"],
        "pre": shlex.join([program, *command[1:]]),
        "pre 2": " ".join((t.folder / "config.yaml").read_text().split()),
    }  # fmt: skip
    if not t.aborted:
        found["forward pass"] = f"{units.prefixed(t.flops('forward'), 'FLOP')}/sample"
    if t.gaps:
        found["resumed"] = f"{len(t.gaps)} time{'s' if len(t.gaps) > 1 else ''}"
    if t.noise_scale is not None:
        found["gradient noise scale"] = t.noise_scale
    return {f"how-it-was-run/{key}": text for key, text in found.items()}


def busy_s(rank: Any) -> dict[str, float]:
    """Seconds of each part of a staging; threads that read and write small files by turns share the time of moving."""
    phases, counters = rank["phases_s"], rank["counters"]
    assert counters["read_stalled_s"] == counters["write_stalled_s"] == 0
    both = counters["read_s"] + counters["write_s"]
    moving = {name: phases["move"] * counters[f"{name}_s"] / both for name in ("read", "write")}
    return {name: phases.get(name, 0.0) for name in ("list", "commit", "verify")} | moving


def staging(t: Tables) -> Claims:
    """Of a run whose files were copied to a folder of this node: what is there, and the times of its report."""
    destination = t.config["staging"]["destination"]
    if not destination:
        return {}
    report = json.loads((t.folder / "staging.json").read_text())
    landed = [path for path in Path(destination).rglob("*") if path.is_file() and ".staging" not in path.parts]
    sizes = [path.stat().st_size for path in landed]
    (rank,) = report["ranks"]
    seconds, size, node = units.duration(rank["seconds"]), units.size(sum(sizes)), t.ranks["node"][0]
    assert rank["seconds"] == pytest.approx(sum(rank["phases_s"].values()), abs=1e-6)
    assert 0 < rank["seconds"] < t.attempts[0]["phases_s"]["staging"] + 1e-3
    part, seconds_busy = max(busy_s(rank).items(), key=lambda each: each[1])
    found = {
        "source": t.config["data"]["root"], "destination": destination,
        "files landed": f"{len(landed)}, {size}", "read from the source": f"{size} ({rank['cache']})",
        "seconds": f"{seconds}, flushed to the device; checksums: transfer",
        "bound by": f"{BUSY[part]}, {units.percent(seconds_busy / rank['seconds'])} of the time; "
        "no ceiling was probed (hpcbench stage --probe)",
    }  # fmt: skip
    slowest = units.duration(report["slowest_node_s"])
    assert report["slowest_node_s"] == pytest.approx(rank["seconds"], rel=0.05)
    found["slowest node"] = f"{node}, {slowest}; median {node}, {slowest}"
    caption = (
        f"{size} landed on one node in {seconds}. No ceiling was probed (hpcbench stage --probe). Bars: what the "
        "slowest rank of each node did, in this order."
    )
    return {f"staging/{key}": text for key, text in found.items()} | {"staging-timelines/figcaption": caption}


def words_of(values: Any) -> Iterator[str]:
    """Every text and number in nested JSON."""
    if isinstance(values, dict | list):
        for each in values.values() if isinstance(values, dict) else values:
            yield from words_of(each)
    else:
        yield str(values)
