"""From options to a study: what is understood, and the one line for each thing that cannot run."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hpcbench.application import find_application
from hpcbench.study.definition import Borrow, Study, grow
from hpcbench.study.plan import points
from hpcbench.study.preset_values import preset_values
from hpcbench.study.rates import Rate
from hpcbench.study.request import Request, define
from staging.errors import DataError, InputError

COSMOFLOW = find_application("cosmoflow")
ASKED = Request(preset="smoke", batch_sizes="8,32", optimizers="sgd,adamw", seeds=2)

NEW = ("lr_search_seeds", "lr_search_widen", "only")
"""What ``study.json`` of an older version lacks."""


def test_a_study_has_the_preset_s_rank_and_rate() -> None:
    study = define(COSMOFLOW, replace(ASKED, batch_sizes="32, 8,8", lr_search="2,1"), {"data.root": "x"})
    assert (study.batch_sizes, study.optimizers, study.lr_search) == ((8, 32), ("sgd", "adamw"), (1.0, 2.0))
    assert study.local_batch_size == 4
    assert study.rates == {"sgd": Rate(0.01, 64), "adamw": Rate(0.001, 4)}
    assert study.settings == {"data.root": "x"}
    assert study.preset_values == preset_values(COSMOFLOW, "smoke")
    assert study.preset_values["train.target"] == 0.46


def test_a_search_widens_twice_and_has_two_seeds_unless_the_command_says() -> None:
    searching = replace(ASKED, lr_search="0.5,1")
    study = define(COSMOFLOW, searching, {})
    assert (study.lr_search_seeds, study.lr_search_widen) == (2, 2)
    study = define(COSMOFLOW, replace(searching, lr_search_seeds=1, lr_search_widen=0), {})
    assert (study.lr_search_seeds, study.lr_search_widen) == (1, 0)


def test_a_study_of_an_older_version_goes_on_with_its_search_unless_the_command_says(study: Study) -> None:
    old = {key: value for key, value in replace(study, lr_search=(0.5, 1.0)).as_dict().items() if key not in NEW}
    before = Study.from_dict(json.loads(json.dumps(old)), Path("study.json"))
    same = replace(ASKED, lr_search="0.5,1,2", lr="adamw=0.001@64", lr_rule="linear,adamw=sqrt")
    found = grow(before, define(COSMOFLOW, same, study.settings, before), Path("s"))
    assert (found.lr_search, found.lr_search_seeds, found.lr_search_widen) == ((0.5, 1.0, 2.0), 1, 0)
    more = define(COSMOFLOW, replace(same, lr_search_widen=1), study.settings, before)
    found = grow(before, more, Path("s"))
    assert (found.lr_search_seeds, found.lr_search_widen) == (1, 1)
    less = define(COSMOFLOW, replace(same, lr_search_widen=0), study.settings, found)
    assert grow(found, less, Path("s")).lr_search_widen == 1, "a study grows, as with fewer seeds"
    far = replace(found, lr_search=(1.0, 1e200), lr_search_widen=0)
    with pytest.raises(InputError, match=r"with --lr-search-widen 1, the search from 0.5 to 1e\+200 may come to"):
        grow(far, found, Path("s"))
    without = Study.from_dict(json.loads(json.dumps(old | {"lr_search": [1.0]})), Path("study.json"))
    found = grow(without, define(COSMOFLOW, same, study.settings, without), Path("s"))
    assert (found.lr_search_seeds, found.lr_search_widen) == (2, 2), "its search is a new one"


def test_an_optimizer_may_have_some_batches_alone(study: Study) -> None:
    asked = replace(ASKED, optimizers="sgd,larc@32,nvlamb@8,nvlamb@32,lars@8,lars")
    found = define(COSMOFLOW, asked, {})
    assert (found.optimizers, found.only) == (("sgd", "larc", "nvlamb", "lars"), {"larc": (32,), "nvlamb": (8, 32)})
    names = [point.name for point in points(found)]
    assert names == ["b8-sgd", "b8-nvlamb", "b8-lars", "b32-sgd", "b32-larc", "b32-nvlamb", "b32-lars"]
    borrowing = define(COSMOFLOW, replace(asked, borrow="8:32"), {})
    assert [point.name for point in points(borrowing) if point.source] == [
        "b32-sgd-from-8", "b32-nvlamb-from-8", "b32-lars-from-8",
    ]  # fmt: skip
    assert Study.from_dict(json.loads(json.dumps(found.as_dict())), Path("study.json")) == found


def test_restrictions_grow_too(study: Study) -> None:
    first = replace(study, optimizers=("sgd", "larc"), only={"larc": (8,)}, rates={**study.rates, "larc": Rate(1, 64)})
    both = grow(first, replace(first, only={"larc": (32,)}), Path("s"))
    assert both.only == {"larc": (8, 32)}
    assert grow(first, replace(study, batch_sizes=(8, 16)), Path("s")).only == {"larc": (8,)}
    assert grow(first, replace(first, only={}), Path("s")).only == {}


def test_a_study_that_shards_keeps_its_nodes(study: Study) -> None:
    sharding = replace(study, placements=("replicate", "shard"), nodes=8)
    more_seeds = grow(sharding, replace(study, seeds=5), Path("s"))
    assert (more_seeds.placements, more_seeds.nodes) == (("replicate", "shard"), 8)
    assert grow(study, sharding, Path("s")).nodes == 8
    with pytest.raises(InputError, match="its number of nodes is 8, this one's 4"):
        grow(sharding, replace(sharding, nodes=4), Path("s"))


def test_what_a_preset_sets_for_its_optimizer_is_not_for_others(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("train: {max_epochs: 7}\n", encoding="utf-8")
    asked = replace(ASKED, preset="mlperf", optimizers="sgd,lamb", optimizer_settings=("lamb:optim.weight_decay=0.1",))
    study = define(COSMOFLOW, asked, {})
    assert study.own_settings["lamb"]["optim.weight_decay"] == "0.1"
    assert study.own_settings["lamb"].get("optim.momentum", "null") == "null"
    study = define(COSMOFLOW, replace(ASKED, optimizers="sgd", files=(file,)), {"optim.momentum": "0.7"})
    assert study.settings == {"optim.momentum": "0.7", "train.max_epochs": "7"}


def test_a_borrowed_preset_comes_with_all_its_optimizer_and_schedule() -> None:
    study = define(COSMOFLOW, replace(ASKED, borrow="8:32,mlperf:32"), {})
    assert study.borrow == (Borrow("8", 32), Borrow("mlperf", 32))
    recipe = study.recipes["mlperf"]
    assert (recipe["optim.name"], recipe["schedule.shape"]) == ("sgd", "multistep")
    assert not [key for key in recipe if not key.startswith(("optim.", "schedule."))]


@pytest.mark.parametrize(
    ("change", "dotted", "message"),
    [
        ({"optimizers": "sgd,larc@64"}, {}, "--optimizers: 'larc@64' has a batch that is not in --batch-sizes; add it"),
        ({"optimizers": "sgd,larc@x"}, {}, "--optimizers: 'x' must be a whole number of at least 1"),
        ({"optimizers": "sgd,lark@8"}, {}, "--optimizers: unknown 'lark'; did you mean 'lar"),
        ({"optimizers": "larc@8"}, {}, "--batch-sizes: 32 has no optimizer; leave it out, or name one without @BATCH"),
        ({"lr_search_seeds": 3}, {}, r"--lr-search-seeds \(3\) is for a search; give --lr-search two multiples"),
        ({"lr_search_widen": 0}, {}, r"--lr-search-widen \(0\) is for a search; give --lr-search two multiples"),
        ({"lr_search": "1,1.001"}, {}, "--lr-search: 1.0 and 1.001 are less than 1% apart; leave one of them out"),
        ({"lr_search": "1,1e200"}, {}, r"with --lr-search-widen 2, the search from 1 to 1e\+200 may come to"),
        ({"lr_search": "1e-200,1"}, {}, r"not above 0 and at most 1.8e\+308; give multiples that are closer together"),
        ({"lr_search": "1e-200,1e200", "lr_search_widen": 1}, {}, "closer together, or lower --lr-search-widen"),
        ({"lr_search": "0.5,1", "lr": "sgd=0.4@8", "lr_rule": "none"},
         {"schedule.warmup": "2", "schedule.warmup_start_lr": "0.15"},
         r"schedule.warmup_start_lr \(0.15\) must be at most the peak, optim.lr \(0.05\); the search may come to 0.125 "
         r"times the rate of batch 8, so lower --lr-search-widen \(2\) or change --lr-search"),
        ({"batch_sizes": "8,6"}, {}, r"--batch-sizes: 6 must be a multiple of 4 \(train.local_batch_size 4\)"),
        ({"batch_sizes": "8,-4"}, {}, "--batch-sizes: '-4' must be a whole number of at least 1"),
        ({"batch_sizes": ","}, {}, "comma-separated list got an empty one"),
        ({"optimizers": "sgd,adamv"}, {}, "--optimizers: unknown 'adamv'; did you mean 'adam"),
        ({"placements": "sharded"}, {}, "--placements: unknown 'sharded'; did you mean 'shard'"),
        ({"placements": "shard", "nodes": 1}, {}, r"--nodes \(1\) must be at least 2"),
        ({"seeds": 0}, {}, r"--seeds \(0\) must be at least 1"),
        ({"borrow": "16:32"}, {}, "--borrow: 16 is not in --batch-sizes"),
        ({"borrow": "32:32"}, {}, "borrows a recipe from itself"),
        ({"borrow": "nod:32"}, {}, "--borrow: 'nod' is neither a batch nor a preset of cosmoflow; did you mean 'node'"),
        ({"borrow": "32"}, {}, "--borrow: '32' is not FROM:BATCH"),
        ({"optimizer_settings": ("lars:optim.eps=1",)}, {}, "--with: 'lars' is not in --optimizers"),
        ({"optimizer_settings": ("optim.eps=1",)}, {}, "is not OPTIMIZER:KEY=VALUE"),
        ({"optimizer_settings": ("sgd:optim.lr=1",)}, {}, "a study sets optim.lr itself; see --lr"),
        ({"samples_per_s_per_rank": -1.0}, {}, r"--samples-per-s-per-rank \(-1.0\) must be above 0"),
        ({"parallel_efficiency": 1.5}, {}, r"--parallel-efficiency \(1.5\) must be above 0 and at most 1"),
        ({}, {"optim.lr": "0.1"}, "--optim.lr: a study sets optim.lr itself; see --lr"),
        ({}, {"parallel.simulated_ranks": "2"}, "see --batch-sizes"),
        ({}, {"train.target": "null"}, "preset 'smoke' has no target, so no run could reach it; set --train.target"),
        ({}, {"train.max_epochz": "3"}, "did you mean 'train.max_epochs'"),
        ({}, {"optim.trust_coefficient": "0.1"}, "optim.trust_coefficient is no option of"),
        ({"lr": "sgd=0.001@8", "lr_rule": "none"}, {"schedule.warmup": "2", "schedule.warmup_start_lr": "0.5"},
         "schedule.warmup_start_lr"),
    ],
)  # fmt: skip
def test_what_cannot_run_is_said_in_a_line(change: dict[str, Any], dotted: dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        define(COSMOFLOW, replace(ASKED, **change), dotted)
    assert "\n" not in str(caught.value)


def test_a_warm_up_stays_below_a_peak_that_a_rule_makes_low() -> None:
    dotted = {"schedule.warmup": "2", "schedule.warmup_start_lr": "0.5"}
    assert define(COSMOFLOW, replace(ASKED, lr="sgd=0.001@8"), dotted).settings == dotted


def test_a_definition_comes_back_from_its_file() -> None:
    study = define(COSMOFLOW, replace(ASKED, borrow="8:32,node:32", command="hpcbench study"), {"data.root": "x"})
    assert Study.from_dict(json.loads(json.dumps(study.as_dict())), Path("study.json")) == study


def test_a_definition_of_another_kind_or_damaged_is_refused(study: Study) -> None:
    with pytest.raises(DataError, match="is a study of the kind 'strong', not 'convergence'"):
        Study.from_dict({"kind": "strong"}, Path("study.json"))
    with pytest.raises(DataError, match="is damaged"):
        Study.from_dict(study.as_dict() | {"rates": None}, Path("study.json"))


def test_a_study_grows_by_its_axes(study: Study) -> None:
    more = replace(study, batch_sizes=(8, 16), optimizers=("adamw", "lamb"), seeds=1, lr_search=(1.0, 2.0),
                   rates={"adamw": study.rates["adamw"], "lamb": Rate(0.002, 64)}, commands=("again",))  # fmt: skip
    both = grow(study, more, Path("s"))
    assert (both.batch_sizes, both.optimizers, both.seeds) == ((8, 16, 32), ("sgd", "adamw", "lamb"), 2)
    assert both.commands == (*study.commands, "again")
    assert set(both.rates) == {"sgd", "adamw", "lamb"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"preset": "laptop"}, "its preset is smoke, this one's laptop"),
        ({"settings": {"data.root": "elsewhere"}}, "its data.root is .*data/cosmoflow, this one's .*elsewhere"),
        (
            {"settings": {"data.root": "data/cosmoflow", "train.target": "0.3"}},
            "its train.target is the preset's, .*0.3",
        ),
        (
            {"rates": {"sgd": Rate(0.1, 64), "adamw": Rate(0.001, 64, "sqrt")}},
            "rate of sgd is 0.01 at batch 64, linear",
        ),
        ({"own_settings": {"sgd": {"optim.momentum": "0.5"}}}, "its sgd's optim.momentum is the preset's"),
        ({"local_batch_size": 2}, "its local batch size is 4, this one's 2"),
    ],
)
def test_another_study_in_the_folder_is_refused(study: Study, change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=f"mine holds another study: .*{message}.*; give another --study-dir"):
        grow(study, replace(study, **change), Path("mine"))


def test_threads_and_another_way_to_write_the_dataset_are_no_other_study(study: Study) -> None:
    same = {"data.root": str(Path("data/cosmoflow").resolve()), "parallel.threads": "7"}
    assert grow(study, replace(study, settings=same), Path("s")).settings == same
