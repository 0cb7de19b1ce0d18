"""The settings that determine a figure, as text, so that slow figures are computed only once."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from hpcbench.application import Application
from hpcbench.config.resolve import as_tree, config_class
from hpcbench.config.schema import RunConfig
from hpcbench.config.typed_values import fill


def settings_key(config: RunConfig, groups: Sequence[str], without: Sequence[str] = ()) -> str:
    """The settings of ``groups`` as text, without those whose dotted names are in ``without``."""
    tree = {group: values for group, values in as_tree(config).items() if group in groups}
    for name in without:
        group, _, key = name.partition(".")
        tree[group].pop(key, None)
    return json.dumps(tree, sort_keys=True)


def config_of_key(application: Application, key: str) -> RunConfig:
    """The configuration with these settings, and defaults for all others."""
    tree: dict[str, Any] = json.loads(key)
    config: RunConfig = fill(config_class(application)(), tree)
    return config
