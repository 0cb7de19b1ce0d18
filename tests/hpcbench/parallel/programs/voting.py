"""Ranks step together and vote in each step; signals come as the command line says; all leave as one.

``rounds SEED``: ten rounds, in each of which signals of its own come to some ranks at random times.
``serve``: steps until signals come from outside, with a thread of rank 1 that waits for the others in vain.
``outside WHO SIGNAL``: rank WHO gets a signal while all wait for each other, outside of any loop; -1: all ranks do.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time

import torch
import torch.distributed as dist

from hpcbench.parallel.group import Group, connect
from hpcbench.parallel.stop_vote import StopVote
from staging.errors import Aborted
from staging.ranks.abort import AbortWatcher
from staging.ranks.launch import detect
from staging.ranks.signals import Interrupted, Interrupts

PAGE_S = 1.5
"""How long rank 0 writes while the others have nothing to do."""


def say(text: str) -> None:
    """One write, so that lines of several ranks do not mix."""
    os.write(1, f"{text}\n".encode())


def step_until_stopped(group: Group, vote: StopVote, interrupts: Interrupts, chance: random.Random) -> tuple[int, int]:
    """The signal for which this rank stops, and the number of its steps."""
    steps = 0
    while True:
        time.sleep(chance.random() * 0.004)
        group.all_reduce_sum(torch.ones(4))
        steps += 1
        stop = vote.poll(interrupts.received)
        if stop is not None:
            return stop, steps


def rounds(group: Group, seed: int) -> int:
    """The signal of the last round."""
    vote = StopVote(group)
    stop = 0
    for number in range(10):
        chance, common = random.Random(seed + 100 * number + group.rank), random.Random(seed + number)
        signals = [common.choice([signal.SIGTERM, signal.SIGINT, signal.SIGUSR1]) for _ in range(group.world_size)]
        if number % 3 == 0:
            signals = signals[:1] * group.world_size
        reached = set(range(group.world_size)) if number % 2 else {common.randrange(group.world_size)}
        sender = threading.Timer(chance.random() * 0.1, os.kill, (os.getpid(), signals[group.rank]))
        with Interrupts() as interrupts, interrupts.deferred():
            if group.rank in reached:
                sender.start()
            stop, steps = step_until_stopped(group, vote, interrupts, chance)
            if group.rank in reached:
                sender.join()
            left = vote.agree_min(interrupts.seconds_left())
        sent = {signals[rank] for rank in reached}
        found = group.all_gather_object((int(stop), steps, left))
        assert len(set(found)) == 1, found
        assert stop in sent
        assert left < 120
        say(f"round {number} of rank {group.rank}: {signal.Signals(stop).name} at step {steps}")
    return stop


def serve(group: Group, interrupts: Interrupts) -> int:
    """The signal that came."""
    vote = StopVote(group)
    staging = dist.new_group(backend="gloo")
    if group.rank == 1:
        threading.Thread(target=dist.all_reduce, args=(torch.ones(1),), kwargs={"group": staging}, daemon=True).start()
    group.barrier()
    say("ready")
    stop, steps = step_until_stopped(group, vote, interrupts, random.Random(group.rank))
    say(f"stopped rank {group.rank}: {signal.Signals(stop).name} at step {steps}")
    return stop


def wait_outside(group: Group, who: int, number: int) -> None:
    """Ranks wait for each other, and one, or all, get a signal."""
    group.barrier()
    say("ready")
    if who in (group.rank, -1):
        os.kill(os.getpid(), number)
    time.sleep(60)


def main(group: Group) -> None:
    with Interrupts() as interrupts, AbortWatcher(group, program="test") as watcher:
        watcher.on_abort = lambda reason: say(f"page of rank {group.rank}: {reason}")
        if sys.argv[1] == "outside":
            wait_outside(group, int(sys.argv[2]), signal.Signals[sys.argv[3]])
        with interrupts.deferred():
            stop = rounds(group, int(sys.argv[2])) if sys.argv[1] == "rounds" else serve(group, interrupts)
            if group.rank == 0:
                time.sleep(PAGE_S)
        raise Interrupted(stop, everywhere=True)


torch.set_num_threads(1)
everyone = connect(detect(os.environ), timeout_s=60)
try:
    main(everyone)
except Aborted as error:
    if everyone.rank == 0 and error.speaks:
        print(f"test: {error}", file=sys.stderr)
    sys.exit(error.exit_code)
