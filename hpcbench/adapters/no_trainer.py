"""Takes the place of the Trainer that Lightning's modules expect, and refuses, in one line, what the suite lacks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from staging.errors import InputError

BASES = ("LightningModule", "LightningDataModule")


class NoTrainer:
    """A stand-in for a Trainer; any use of it raises ``InputError``."""

    def __init__(self, owner: str) -> None:
        self.owner = owner

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise InputError(
            f"{self.owner} asks its Trainer for `{name}`, and a run of the suite has no Trainer; "
            "do without it, or write an application of your own (docs/your-own-model.md)"
        )


def overridden(module: Any, method: str) -> bool:
    """Whether the class of ``module`` defines ``method`` itself, rather than inheriting it from Lightning's classes."""
    for cls in type(module).__mro__:
        if cls.__name__ in BASES and cls.__module__.split(".")[0] in ("lightning", "pytorch_lightning"):
            return False
        if method in vars(cls):
            return True
    return False


def check_hooks(module: Any, hooks: Sequence[str]) -> None:
    """Refuse hooks that would change the training, but that the suite does not call. Raises ``InputError``."""
    defined = [name for name in hooks if overridden(module, name)]
    if defined:
        raise InputError(
            f"{type(module).__name__} defines {', '.join(defined)}, which a run of the suite does not call; "
            "move what it does into the step or the dataset"
        )
