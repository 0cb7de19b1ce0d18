"""Packages of made-up submissions, from published logs with seeds, times and faults of their own."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hpcbench.mlperf.step_lines import is_of_the_run
from hpcbench.results.mllog_reader import MARK

LOGS = Path(__file__).parents[2] / "data" / "logs"
SOURCES = {"cosmoflow": LOGS / "v1.0-nvidia-cosmoflow.txt", "deepcam": LOGS / "v1.0-nvidia-deepcam.txt"}
SYSTEM = LOGS / "v1.0-nvidia-cosmoflow-system.json"
RUNS = {"cosmoflow": 10, "deepcam": 5}
SLOWER = {"cosmoflow": 6, "deepcam": 0}
"""Epochs added, without a duration, since NVIDIA's CosmoFlow logs are too fast for the reference."""
Entries = list[dict[str, Any]]


def entries_of(benchmark: str) -> Entries:
    """The lines of a published log that tell of the run as a whole."""
    text = SOURCES[benchmark].read_text("latin-1")
    lines = [line for line in text.splitlines() if MARK in line and is_of_the_run(line)]
    return [json.loads(line.rpartition(MARK)[2]) for line in lines]


def run_of(benchmark: str, number: int, rng: random.Random, nodes: int | None = None) -> Entries:
    """A run with a seed and a pace of its own."""
    entries = entries_of(benchmark)
    start, pace = entries[0]["time_ms"], rng.uniform(0.9, 1.2)
    shift = rng.randrange(100_000)
    for entry in entries:
        entry["time_ms"] = int(start + shift + (entry["time_ms"] - start) * pace)
        if "epoch_num" in entry["metadata"]:
            entry["metadata"]["epoch_num"] += SLOWER[benchmark] + rng.choice((0, 0, 0.5)) * (number % 2)
        if nodes is not None and entry["key"] == "number_of_nodes":
            entry["value"] = nodes
    entries = [entry for entry in entries if entry["key"] != "seed"]
    first = next(index for index, entry in enumerate(entries) if entry["key"] == "epoch_start")
    entries[first:first] = [
        entries[first] | {"key": key, "metadata": {"epoch_num": epoch}}
        for epoch in range(1, 1 + SLOWER[benchmark])
        for key in ("epoch_start", "epoch_stop")
    ]
    place = {"file": "train.py", "lineno": 10}
    seed = {"key": "seed", "value": 1000 + number, "metadata": place, "time_ms": start + shift}
    return [seed, *entries]


def write(path: Path, entries: Entries) -> None:
    """A log of these lines."""
    path.write_text("".join(f":::MLLOG {json.dumps(entry)}\n" for entry in entries))


def read(path: Path) -> Entries:
    """The lines of a log that can be read."""
    found = []
    for line in path.read_text().splitlines():
        try:
            found.append(json.loads(line.rpartition(MARK)[2]))
        except ValueError:
            continue
    return found


def make_folder(root: Path, benchmark: str, rng: random.Random, weak: bool = False, closed: bool = True) -> Path:
    """An organization below ``root`` with one folder of runs that the official tools accept."""
    system = json.loads(SYSTEM.read_text())
    system["division"] = "closed" if closed else "open"
    system["number_of_nodes"] = {"cosmoflow": "128", "deepcam": "256"}[benchmark] if not weak else "10"
    (root / "systems").mkdir(parents=True, exist_ok=True)
    (root / "systems" / "box.json").write_text(json.dumps(system))
    folder = root / "results" / "box" / ("weak" if weak else "strong") / benchmark
    folder.mkdir(parents=True)
    for number in range(RUNS[benchmark] + (rng.randrange(3) if weak else 0)):
        entries = run_of(benchmark, number, rng, nodes=2 if weak else None)
        for entry in entries:
            if not closed and entry["key"] == "submission_division":
                entry["value"] = "open"
        write(folder / f"result_{number}.txt", entries)
    return folder


def logs_of(folder: Path) -> list[Path]:
    return sorted(folder.glob("result_*.txt"))


def edit_some(
    folder: Path, rng: random.Random, edit: Callable[[dict[str, Any]], None], key: str, most: int = 2
) -> None:
    """Edit the entries of a key in some logs."""
    logs = logs_of(folder)
    for path in rng.sample(logs, min(len(logs), rng.randint(1, most))):
        entries = read(path)
        for entry in entries:
            if isinstance(entry, dict) and entry.get("key") == key:
                edit(entry)
        write(path, entries)


DAMAGED = "{"


def edit_system(folder: Path, edit: Callable[[dict[str, Any]], None]) -> None:
    """Edit the system description, unless ``lose_system`` has moved or damaged it before."""
    path = folder.parents[3] / "systems" / "box.json"
    if path.exists() and path.read_text() != DAMAGED:
        system = json.loads(path.read_text())
        edit(system)
        path.write_text(json.dumps(system))


def quality_key(folder: Path) -> str:
    return "eval_error" if folder.name == "cosmoflow" else "eval_accuracy"


def remove_log(folder: Path, rng: random.Random) -> None:
    rng.choice(logs_of(folder)).unlink()


def add_log(folder: Path, rng: random.Random) -> None:
    write(folder / f"result_{rng.choice(('50', '51', 'extra'))}.txt", run_of(folder.name, rng.choice((3, 77)), rng))


def miss_target(folder: Path, rng: random.Random) -> None:
    worse = {"value": 0.5}
    edit_some(folder, rng, lambda entry: entry.update(worse), quality_key(folder), rng.choice((1, 1, 3)))


def abort(folder: Path, rng: random.Random) -> None:
    edit_some(folder, rng, lambda entry: entry["metadata"].update(status="aborted"), "run_stop", rng.choice((1, 1, 3)))


def lose_status(folder: Path, rng: random.Random) -> None:
    edit_some(folder, rng, lambda entry: entry["metadata"].clear(), "run_stop", 1)


def forge_scaling(folder: Path, rng: random.Random) -> None:
    text = rng.choice(
        ('{"scaling_factor": 2}', '{"scaling_factor": 1.5}', '{"factor": 2}', "{", '{"scaling_factor": "2"}')
    )
    (folder / "scaling.json").write_text(text)


def resize(folder: Path, rng: random.Random) -> None:
    edit_some(folder, rng, lambda entry: entry.update(value=rng.choice((0, 3, "2", None, [1]))), "number_of_nodes", 1)


def drop_key(folder: Path, rng: random.Random) -> None:
    key = rng.choice(("number_of_nodes", "opt_name", "global_batch_size", "run_stop", "run_start", "submission_org",
                      "submission_benchmark", "seed", "eval_stop", "init_start"))  # fmt: skip
    for path in rng.sample(logs_of(folder), rng.choice((1, 1, 2))):
        write(path, [entry for entry in read(path) if entry.get("key") != key])


def spoil_seed(folder: Path, rng: random.Random) -> None:
    def edit(entry: dict[str, Any]) -> None:
        rng.choice((
            lambda: entry.update(value="x"), lambda: entry.update(value="12"), lambda: entry.update(value=1.5),
            lambda: entry.update(metadata={}), lambda: entry.update(value=1001), lambda: entry["metadata"].pop("file"),
        ))()  # fmt: skip

    edit_some(folder, rng, edit, "seed")


def append_line(folder: Path, rng: random.Random) -> None:
    line = rng.choice((
        ":::MLLOG {broken", ":::MLLOG ", "rank 0 :::MLLOG {\"key\": \"x\"}", "plain text",
        ":::MLLOG {\"key\": \"note\", \"time_ms\": 1, \"value\": \"eval_error\", \"metadata\": {}}",
        ":::MLLOG {\"key\": \"note\", \"time_ms\": 1, \"value\": \"global_batch_size\", \"metadata\": {}}",
        ":::MLLOG {\"key\": \"eval_error\", \"time_ms\": 1, \"value\": 0.5, \"metadata\": {}}",
        ":::MLLOG {\"key\": \"note\", \"time_ms\": \"x\", \"value\": 1, \"metadata\": {}}",
        ":::MLLOG {\"key\": \"note\", \"time_ms\": \"12\", \"value\": NaN, \"metadata\": {}}",
        "3: :::MLLOG {\"key\"} :::MLLOG {\"key\": \"note\", \"time_ms\": 12.5, \"value\": 1, \"metadata\": null}",
    ))  # fmt: skip
    path = rng.choice(logs_of(folder))
    path.write_text(f"{path.read_text()}{line}\n")


def rename_value(folder: Path, rng: random.Random) -> None:
    key, value = rng.choice((
        ("submission_division", "Closed"), ("submission_division", "open"), ("submission_benchmark", "oc20"),
        ("submission_benchmark", "protein"), ("submission_status", "Preview"), ("global_batch_size", 128),
        ("global_batch_size", "512"), ("scheduler_type", "cosine_annealing"), ("opt_name", "LARS"), ("seed", 0),
        ("train_samples", 7),
    ))  # fmt: skip
    edit_some(folder, rng, lambda entry: entry.update(value=value), key)


def change_all_batches(folder: Path, rng: random.Random) -> None:
    batch = rng.choice((32, 64, 100, 128, 256, 512, 700, 1024, 1500, 2048, 4096))
    for path in logs_of(folder):
        entries = read(path)
        for entry in entries:
            if entry.get("key") == "global_batch_size":
                entry["value"] = batch
        write(path, entries)


def shift_epochs(folder: Path, rng: random.Random) -> None:
    more = rng.choice((-15, -5, -3, -2, -1.5, -1, -0.25, 1, 5))
    for path in logs_of(folder):
        entries = read(path)
        for entry in entries:
            if isinstance(entry.get("metadata"), dict) and "epoch_num" in entry["metadata"]:
                entry["metadata"]["epoch_num"] += more
        write(path, entries)


def change_system(folder: Path, rng: random.Random) -> None:
    field = rng.choice(("cooling", "division", "framework", "number_of_nodes", "host_processors_per_node"))
    rng.choice((
        lambda: edit_system(folder, lambda system: system.pop(field, None)),
        lambda: edit_system(folder, lambda system: system.update(accelerators_per_node=8)),
        lambda: edit_system(folder, lambda system: system.update(division="open")),
        lambda: edit_system(folder, lambda system: system.update(number_of_nodes="")),
        lambda: edit_system(folder, lambda system: system.update(framework=None)),
    ))()  # fmt: skip


def lose_system(folder: Path, rng: random.Random) -> None:
    path = folder.parents[3] / "systems" / "box.json"
    if path.exists():
        path.rename(path.with_name("other.json")) if rng.random() < 0.5 else path.write_text(DAMAGED)


def bypass(folder: Path, rng: random.Random) -> None:
    text = rng.choice(("rcp-bypass", "rcp-bypass\n", "seed-checker-bypass", "seed-checker-bypass\nrcp-bypass", ""))
    rng.choice((folder, folder.parents[1])).joinpath("package_checker_params").write_text(text)


def other_files(folder: Path, rng: random.Random) -> None:
    rng.choice((
        lambda: (folder / "notes.txt").write_text("x"), lambda: (folder / "power").mkdir(exist_ok=True),
        lambda: (folder / "pruned_results").mkdir(exist_ok=True), lambda: (folder / "result_9x.txt").write_text(""),
        lambda: (folder.parents[1] / "medium" / "deepcam").mkdir(parents=True, exist_ok=True),
        lambda: (folder.parent / "bert").mkdir(exist_ok=True),
        lambda: (folder.parent / "openfold").mkdir(exist_ok=True),
    ))()  # fmt: skip


def move_time(folder: Path, rng: random.Random) -> None:
    key = rng.choice(("init_start", "run_stop", "run_start", "init_stop"))
    by = rng.choice((-1_900_000, -1000, 0.5, 1000, 1_900_000))
    edit_some(folder, rng, lambda entry: entry.update(time_ms=entry["time_ms"] + by), key)


def repeat_line(folder: Path, rng: random.Random) -> None:
    key = rng.choice(("run_start", "run_stop", "init_stop", "global_batch_size", "staging_start", "seed"))
    path = rng.choice(logs_of(folder))
    entries = read(path)
    again = [dict(entry) for entry in entries if entry.get("key") == key][:1]
    for entry in again:
        entry["time_ms"] = entry["time_ms"] + rng.choice((0, 5))
        entry["value"] = rng.choice((entry.get("value"), 5))
    place = rng.randint(0, len(entries))
    write(path, [*entries[:place], *again, *entries[place:]])


MUTATIONS: tuple[Callable[[Path, random.Random], None], ...] = (
    remove_log, add_log, miss_target, abort, lose_status, forge_scaling, resize, drop_key, spoil_seed, append_line,
    rename_value, change_all_batches, shift_epochs, change_system, lose_system, bypass, other_files, move_time,
    repeat_line,
)  # fmt: skip


def mutated(root: Path, seed: int) -> tuple[Path, list[str]]:
    """A package with up to three faults, and their names."""
    rng = random.Random(seed)
    benchmark = rng.choice(("deepcam", "deepcam", "cosmoflow"))
    folder = make_folder(root, benchmark, rng, weak=rng.random() < 0.4, closed=rng.random() < 0.7)
    chosen = rng.sample(MUTATIONS, rng.choice((0, 1, 1, 2, 3)))
    for mutation in chosen:
        if logs_of(folder):
            mutation(folder, rng)
    return folder, [mutation.__name__ for mutation in chosen]


def make_rounds(root: Path) -> None:
    """Four entries of two rounds: two that keep all rules, and two with another official score."""
    make_folder(root / "v1.0" / "CENTRE", "deepcam", random.Random(1))
    make_folder(root / "v1.0" / "OTHER", "cosmoflow", random.Random(2))
    abort(make_folder(root / "v1.0" / "THIRD", "deepcam", random.Random(3), weak=True, closed=False), random.Random(1))
    forged = make_folder(root / "v2.0" / "CENTRE", "deepcam", random.Random(4))
    shift_epochs(forged, random.Random(4))
    (forged / "scaling.json").write_text('{"scaling_factor": 1.5}')
