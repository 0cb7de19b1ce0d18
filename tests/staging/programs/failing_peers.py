"""Ranks without MPI that talk through files of a folder, of which one fails as the command line says."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import time
import warnings
from pathlib import Path
from typing import Any

from staging.errors import EveryRankError, InputError
from staging.ranks.abort import AbortWatcher


class FilePeers:
    """Peers that wait for each other's files."""

    def __init__(self, folder: Path, rank: int, world_size: int) -> None:
        self.folder, self.rank, self.world_size = folder, rank, world_size

    def addresses(self) -> list[str]:
        return ["127.0.0.2", "127.0.0.1"]

    def broadcast_object(self, value: Any) -> Any:
        if self.rank == 0:
            self.put("value", pickle.dumps(value))
        return pickle.loads(self.get("value"))

    def barrier(self) -> None:
        self.put(f"rank{self.rank}", b"here")
        for rank in range(self.world_size):
            self.get(f"rank{rank}")

    def put(self, name: str, data: bytes) -> None:
        (self.folder / f"{name}.part").write_bytes(data)
        (self.folder / f"{name}.part").rename(self.folder / name)

    def get(self, name: str) -> bytes:
        while not (self.folder / name).exists():
            time.sleep(0.005)
        return (self.folder / name).read_bytes()


def main(folder: str, rank: int, world_size: int, how: str, who: int) -> None:
    peers = FilePeers(Path(folder), rank, world_size)

    def told(reason: str) -> None:
        print(f"log of rank {rank}: {reason}", flush=True)

    with AbortWatcher(peers, told, program="test", with_parent=how == "orphan"):
        os.write(1, b"ready\n")
        if how == "common":
            raise EveryRankError("the folder is not there", speaks=rank == who)
        if rank == who:
            if how == "raise":
                raise RuntimeError("the reactor leaks")
            if how == "input":
                raise InputError("the file is cut short")
            if how == "kill":
                # A forked reader that lives on for a while must not hide the death.
                warnings.simplefilter("ignore", DeprecationWarning)  # of a fork beside threads, which is the case here
                if os.fork() == 0:
                    os.close(1)
                    os.close(2)
                    time.sleep(8)
                    os._exit(0)
                os.kill(os.getpid(), signal.SIGKILL)
        if how != "nothing":
            time.sleep(60)


if __name__ == "__main__":
    try:
        main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], int(sys.argv[5]))
    except InputError as error:
        print(f"speaks: {error.speaks}", file=sys.stderr)
        sys.exit(2)
