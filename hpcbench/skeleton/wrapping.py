"""The request to wrap parts of other packages as an application, and what looking at the parts showed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from hpcbench.adapters.pairs import Keys


@dataclass(frozen=True)
class Wrapping:
    """What is to be wrapped; each text is ``package.module:name``."""

    module: str
    data: str | None = None
    """A LightningDataModule."""
    dataset: str | None = None
    """A function of a folder that makes training and validation set."""
    loss: str | None = None
    metrics: tuple[str, ...] = ()
    """Names that a LightningModule logs; for a plain module at most one, a function."""
    better: Literal["lower", "higher"] = "lower"
    keys: Keys | None = None
    target: float | None = None
    batch_size: int = 32
    max_epochs: int = 20


@dataclass(frozen=True)
class Found:
    """What looking at the parts showed."""

    lightning: bool
    optimizer: dict[str, Any]
    """Settings of ``optim``."""
    remark: str
    """Where these come from."""
    folder_argument: str | None
    """The data module's argument for its folder."""
