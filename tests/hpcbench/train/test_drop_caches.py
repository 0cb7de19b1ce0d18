"""Dropping the cached pages of a dataset, which is asked for its files only then."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from hpcbench.config.schema import RunConfig
from hpcbench.train.dataset_staging import drop_caches
from staging.errors import DataError


def test_a_dataset_need_not_say_which_files_it_has_unless_their_pages_are_dropped() -> None:
    said: list[str] = []
    config = RunConfig()
    run: Any = SimpleNamespace(config=config, log=SimpleNamespace(cache_clear=said.append))

    def files() -> None:
        raise DataError("data/train", "no such folder", "add files_of_split")

    data: Any = SimpleNamespace(files=files)
    drop_caches(run, data)
    assert said == ["not done: pages of the dataset may be cached"]
    config.submission.clear_cache = True
    with pytest.raises(DataError, match="no such folder"):
        drop_caches(run, data)
