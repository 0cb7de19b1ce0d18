"""A rank whose memory has holes with random bytes in them when it starts MPI; prints how many ranks there are."""

from __future__ import annotations

import ctypes
import random

from staging.ranks.mpi import communicator

if __name__ == "__main__":
    libc = ctypes.CDLL(None)
    libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    libc.free.argtypes = [ctypes.c_void_p]
    dice = random.Random(0)
    blocks = []
    for _ in range(30_000):
        size = dice.choice([200, 600, 1100, 2100, 4200, 6000])
        blocks.append(libc.malloc(size))
        ctypes.memmove(blocks[-1], dice.randbytes(size), size)
    for block in blocks[::2]:
        libc.free(block)
    world = communicator()
    print(0 if world is None else world.allreduce(1))
