"""All ranks of MPI say where they are and send buffers around; rank 0 prints what came of it as one JSON line."""

from __future__ import annotations

import json
from dataclasses import asdict

import numpy as np

from staging.errors import InputError
from staging.ranks.collective_errors import together
from staging.ranks.mpi_world import mpi_world, one_node_per_rank, simulated
from staging.ranks.world import World

SIZES = (0, 1, 7, 65_537, 3_000_001)


def content(rank: int, size: int) -> bytes:
    return np.random.default_rng([rank, size]).bytes(size)


def ring(world: World) -> bool:
    """Every rank sends to the next; lengths differ between ranks, so that one is empty while others are not."""
    rank, size = world.place.rank, world.place.size
    after, before = (rank + 1) % size, (rank - 1) % size
    right = True
    for turn in range(len(SIZES)):
        sent = content(rank, SIZES[(rank + turn) % len(SIZES)])
        received = bytearray(SIZES[(before + turn) % len(SIZES)])
        world.send_receive(memoryview(sent), after, received, before)
        right &= received == content(before, len(received))
    numbers = np.full((3, 5), rank, dtype=np.float64)
    filled = np.empty_like(numbers)
    world.send_receive(numbers, after, filled, before)
    return right and bool((filled == before).all())


def down_the_line(world: World) -> bool:
    """Rank 0 only sends, the last rank only receives, and one alone does neither."""
    rank, last = world.place.rank, world.place.size - 1
    received = bytearray(5) if rank else None
    world.send_receive(b"words" if rank < last else None, rank + 1, received, rank - 1)
    return received in (None, b"words")


def wrong_length(world: World) -> str:
    """What is said of a message that is shorter than the buffer that it comes into."""
    rank, size = world.place.rank, world.place.size
    try:
        world.send_receive(b"abc", (rank + 1) % size, bytearray(5), (rank - 1) % size)
    except RuntimeError as error:
        return str(error)
    return ""


def problem(world: World, failing: int, everywhere: bool = False) -> tuple[str, bool]:
    """What every rank reads when the rank ``failing`` finds bad input, and whether it speaks."""

    def step() -> int:
        if world.place.rank == failing or everywhere:
            raise InputError("the file is gone")
        return world.place.rank

    try:
        assert together(world, step) == world.place.rank
    except InputError as error:
        return str(error), error.speaks
    return "", False


def main() -> None:
    world = mpi_world()
    size = world.place.size
    found = {
        "place": asdict(world.place),
        "simulated": [asdict(simulated(world, nodes).place) for nodes in range(1, size + 1)],
        "per_rank": asdict(one_node_per_rank(world).place),
        "gathered": world.all_gather({"rank": world.place.rank}),
        "broadcast": world.broadcast(("from", world.place.rank)),
        "ring": ring(world) if size > 1 else True,
        "line": down_the_line(simulated(world, size)) if size > 1 else True,
        "wrong length": wrong_length(world) if size > 1 else "",
        "nothing wrong": problem(world, failing=size),
        "last rank wrong": problem(world, failing=size - 1),
        "last node wrong": problem(simulated(world, size), failing=size - 1),
        "all wrong": problem(simulated(world, size), failing=0, everywhere=True),
    }
    everyone = world.all_gather(found)
    if world.place.rank == 0:
        print(json.dumps(everyone), flush=True)


if __name__ == "__main__":
    main()
