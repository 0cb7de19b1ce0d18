"""Name the samples of a CosmoFlow set in the order of one of their parameters, for a study of placements.

    python docs/studies/ordered_set.py data/cosmoflow data/cosmoflow-ordered --by sigma_8

Writes links to the files of the set (TFRecord) into a new folder. The training files are numbered by the parameter, so
that a shard which is a run of the sorted names has a part of its range only; the validation files keep their names.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import numpy as np

from apps.cosmoflow.config import PARAMETERS
from apps.cosmoflow.inspection import recognize_file
from apps.cosmoflow.samples import read_features


def main() -> None:
    """Link every file of both splits."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--by", choices=PARAMETERS, default="sigma_8")
    args = parser.parse_args()
    column = PARAMETERS.index(args.by)
    files = sorted((args.source / "train").glob("*.tfrecord"))
    values = [label(path)[column] for path in files]
    for split in ("train", "validation"):
        (args.out / split).mkdir(parents=True)
    for number, index in enumerate(np.argsort(values, kind="stable").tolist()):
        link(files[index], args.out / "train" / f"{number:08d}_{files[index].name}")
    for path in sorted((args.source / "validation").glob("*.tfrecord")):
        link(path, args.out / "validation" / path.name)


def label(path: Path) -> list[float]:
    """The four scaled parameters of a sample."""
    form = recognize_file(path)
    if not form:
        raise SystemExit(f"{path}: is no CosmoFlow sample")
    return list(np.asarray(read_features(path, form["compression"])["y"], float))


def link(path: Path, name: Path) -> None:
    """A hard link: the set is staged and read like any other."""
    os.link(path, name)


if __name__ == "__main__":
    main()
