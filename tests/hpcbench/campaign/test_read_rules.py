"""Files of rules: what the shipped ones say, and what is refused with its line."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from hpcbench.campaign.entry import base_config, rehearsed, run_config
from hpcbench.campaign.read_rules import CAMPAIGNS, campaign_path, known_campaigns, read_campaign
from hpcbench.campaign.rules import Campaign
from hpcbench.campaign.show import rules_page
from hpcbench.config.resolve import resolve
from hpcbench.optim.recipes import RECIPES
from staging.errors import InputError
from tests.hpcbench.campaign.made_up import entry_of, shipped

NAMES = ("esif-hpc-4", "mlperf-hpc-3.0", "nersc10-deepcam")


def changed(tmp_path: Path, old: str, new: str, name: str = "nersc10-deepcam") -> Path:
    """A copy of a shipped file with one place changed."""
    text = (CAMPAIGNS / f"{name}.yaml").read_text()
    assert old in text
    path = tmp_path / "mine.yaml"
    path.write_text(text.replace(old, new, 1))
    return path


def test_the_shipped_campaigns() -> None:
    assert tuple(known_campaigns({"HPCBENCH_CAMPAIGNS": "/nowhere"})) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_every_scenario_can_be_configured_in_every_category(name: str) -> None:
    campaign = shipped(name)
    for scenario in campaign.scenarios:
        for category in campaign.categories:
            entry = entry_of(campaign, scenario.name, category.name)
            assert run_config(entry) == base_config(entry)
            small = entry_of(campaign, scenario.name, category.name, small=True)
            assert run_config(small).preset == "smoke"
            assert rehearsed(scenario).rules == scenario.rules, "the same shape"


@pytest.mark.parametrize("name", NAMES)
def test_its_rules_fit_100_columns_and_name_every_source(name: str) -> None:
    campaign = shipped(name)
    page = rules_page(campaign)
    assert max(map(len, page.splitlines())) <= 100
    for source in campaign.sources:
        assert source.url in page
        assert source.read in page


def test_numbers_of_the_rules() -> None:
    nersc = shipped("nersc10-deepcam").scenarios[0]
    config = base_config(entry_of(shipped("nersc10-deepcam"), "deepcam", "baseline"))
    assert (nersc.batch.global_size, nersc.metric.epochs, nersc.stop.epochs, nersc.stop.target) == (2048, 16, 64, 0.8)
    optim, schedule = config.optim, config.schedule
    assert (optim.lr, optim.weight_decay, list(optim.betas or ())) == (0.0055, 0.01, [0.9, 0.999])
    assert (schedule.shape, schedule.warmup, schedule.milestones, schedule.factors) == ("multistep", 400, [800], [0.1])
    first, second = shipped("esif-hpc-4").scenarios
    assert (first.batch.local_size, first.scales, first.replicates, first.stop.target) == (12, (1, 4, 8), 3, None)
    assert (second.batch.global_size, second.stop.epochs, second.stop.target) == (1024, 50, 0.82)
    esif = base_config(entry_of(shipped("esif-hpc-4"), "s2", "baseline"))
    assert (esif.optim.name, esif.optim.lr, esif.optim.weight_decay) == ("adamw", 5e-4, 0.2)
    assert (esif.schedule.shape, esif.schedule.warmup) == ("cosine", 0)
    runs = {each.name: each.replicates for each in shipped("mlperf-hpc-3.0").scenarios}
    assert runs == {"cosmoflow": 10, "cosmoflow-throughput": 10, "deepcam": 5, "deepcam-throughput": 5}


@pytest.mark.parametrize("recipe", [each for each in RECIPES if each.point], ids=lambda each: each.preset)
def test_published_recipes_are_closed_ones(recipe: object) -> None:
    each = next(known for known in RECIPES if known is recipe)
    entry = entry_of(shipped("mlperf-hpc-3.0"), each.application, "closed", preset=each.preset)
    config = run_config(entry)
    assert config.optim.lr == pytest.approx(each.peak)
    assert config.optim.base_batch_size == each.global_batch_size


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("      what: seconds_of_epochs", "      wat: seconds_of_epochs",
         "scenarios[0].metric.unknown key 'wat'; did you mean 'what'?"),
        ("      what: seconds_of_epochs", "      what: joules",
         "scenarios[0].metric.what (joules) must be one of seconds_per_step"),
        ("      epochs: 64\n", "      epochs: many\n",
         "scenarios[0].stop.epochs (many) must be a whole number"),
        ("      epochs: 64\n", "      epochs: 0\n", "scenarios[0].stop.epochs (0) must be"),
        ("      epochs: 64\n", "      epochs: 8\n", "metric.epochs (16) is more than stop.epochs (8)"),
        ("    read: 2026-11-24\n", "    read: today\n", "line 6: sources[0].read ('today') must be a date such as"),
        ("category: optimized, nodes", "category: optimised, nodes",
         "scenarios[0].references[2].category: unknown name 'optimised'; did you mean 'optimized'?"),
        ("[train.accumulation]", "[train.acumulation]",
         "scenarios[0].rules[2].settings: unknown name 'train.acumulation'; did you mean 'train.accumulation'?"),
        ("    preset: mlperf-2048", "    preset: mlperf-2047", "scenarios[0].preset: unknown name 'mlperf-2047'"),
        ("    application: deepcam", "    application: deepcan", "application: unknown application 'deepcan'"),
        ("    precision: [32-true]", "    precision: [fp8]", "categories[0].precision"),
        ("    precision: [32-true]", "    precision: []", "line 14: categories[0].precision must name at least one"),
        ("        kind: free", "        kind: bounded", "kind is bounded, but no low, high or choices say how"),
        ("  - name: ported", "  - name: baseline", "categories has an entry twice"),
        ("title: NERSC-10 DeepCAM", "titel: NERSC-10 DeepCAM", "line 2: unknown key 'titel'; did you mean 'title'?"),
        ("    title: Time of 16 training epochs\n", "", "scenarios[0] lacks 'title'; add it"),
        ("      global_size: 2048", "      global_size: 2048\n      local_size: 2",
         "batch has local_size and global_size"),
        ("      train.checkpoint_every: 0", "      train.checkpoint_evry: 0", "recipe: unknown setting"),
        ("title: NERSC-10 DeepCAM", "title: [", "not valid YAML"),
        ("      statistic: median", "      statistic: olympic", "replicates must be 3 or more for an olympic mean"),
    ],
)  # fmt: skip
def test_a_wrong_file_is_refused_in_one_line(tmp_path: Path, old: str, new: str, said: str) -> None:
    path = changed(tmp_path, old, new)
    with pytest.raises(InputError) as error:
        read_campaign(path)
    words = str(error.value)
    assert said in words
    assert words.startswith(f"{path}, line ")
    assert "\n" not in words


LAST_RULE = "        low: 0\n        rule: opt_weight_decay is at least 0\n"
DROPOUT = "        low: 0\n        high: 1\n        open_high: true\n        rule: dropout"


@pytest.mark.parametrize(
    ("name", "old", "new", "said"),
    [
        ("nersc10-deepcam", "      train.checkpoint_every: 0\n", "      optim.lr: fast\n",
         "scenarios[0].recipe.optim.lr (fast) must be a number"),
        ("nersc10-deepcam", "        parallel.threads: 1\n", "        optim.momentum: [1, 2]\n",
         "scenarios[0].rehearsal.settings.optim.momentum ([1, 2]) must be a number or null"),
        ("nersc10-deepcam", "      train.checkpoint_every: 0\n", "      optim.name: adma\n",
         "scenarios[0].recipe.optim.name: unknown optimizer optim.name 'adma'; did you mean 'adam'?"),
        ("nersc10-deepcam", "      train.checkpoint_every: 0\n", "      schedule.factors: [0.1, 0.2]\n",
         "scenarios[0].recipe.schedule.factors: schedule.milestones has 1 value and schedule.factors 2"),
        ("mlperf-hpc-3.0", DROPOUT, DROPOUT.replace("low: 0", "low: 5"),
         "scenarios[0].rules[5].low (5) must be below high (1); change one of them"),
        ("mlperf-hpc-3.0", DROPOUT, DROPOUT.replace("low: 0", "low: 1"),
         "scenarios[0].rules[5].low (1) must be below high (1); change one of them"),
        ("mlperf-hpc-3.0", LAST_RULE, LAST_RULE.replace("low: 0", "low: 5"),
         "scenarios[0].rules[6].low (from 5) leaves out the scenario's own optim.weight_decay 0.01 in category closed"),
        ("mlperf-hpc-3.0", "        choices: [sgd]\n", "        choices: [sdg]\n",
         "scenarios[0].rules[0].choices (sdg) leaves out the scenario's own optim.name sgd in category closed"),
    ],
)  # fmt: skip
def test_a_value_that_no_run_can_have_is_refused_at_its_line(
    tmp_path: Path, name: str, old: str, new: str, said: str
) -> None:
    path = changed(tmp_path, old, new, name)
    changed_line = next(line for line in new.splitlines() if line not in old.splitlines())
    with pytest.raises(InputError) as error:
        read_campaign(path)
    number = path.read_text().splitlines().index(changed_line) + 1
    assert str(error.value).startswith(f"{path}, line {number}: {said}")


def test_the_line_that_the_page_on_campaigns_shows(tmp_path: Path) -> None:
    path = changed(tmp_path, "      what: seconds_of_epochs", "      what: joules")
    with pytest.raises(InputError) as error:
        read_campaign(path)
    page = (Path(__file__).parents[3] / "docs/campaigns.md").read_text()
    assert str(error.value).replace(f"{tmp_path}/", "") in " ".join(page.split())


@pytest.mark.parametrize("number", range(0, 140, 28))
def test_the_line_is_that_of_the_key(tmp_path: Path, number: int) -> None:
    lines = (CAMPAIGNS / "nersc10-deepcam.yaml").read_text().splitlines()
    at = next((n for n in range(number, len(lines)) if lines[n].strip().startswith(("title:", "kind:", "text:"))), None)
    if at is None:
        return
    key = lines[at].strip().partition(":")[0]
    lines[at] = lines[at].replace(f"{key}:", f"{key}x:")
    path = tmp_path / "mine.yaml"
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(InputError, match=f"line {at + 1}: .*unknown key '{key}x'"):
        read_campaign(path)


def test_an_unknown_campaign_has_a_suggestion() -> None:
    with pytest.raises(InputError, match="unknown campaign 'nersc10'; did you mean 'nersc10-deepcam'"):
        campaign_path("nersc10", {"HPCBENCH_CAMPAIGNS": "/nowhere"})


def test_own_campaigns_come_first_and_may_extend_others(tmp_path: Path) -> None:
    environ = {"HPCBENCH_CAMPAIGNS": str(tmp_path)}
    shutil.copy(CAMPAIGNS / "esif-hpc-4.yaml", tmp_path / "nersc10-deepcam.yaml")
    assert read_campaign(campaign_path("nersc10-deepcam", environ)).title.startswith("ESIF")
    (tmp_path / "ours.yaml").write_text(
        "extends: esif-hpc-4\ntitle: Ours\nacceptance:\n"
        "  - {scenario: s1, category: baseline, nodes: 8, value: 0.75, tolerance: 0.05, repeats: 3}\n"
    )
    ours: Campaign = read_campaign(campaign_path("ours", environ), environ)
    assert (ours.name, ours.title, len(ours.scenarios)) == ("ours", "Ours", 2)
    assert ours.acceptance[0].tolerance == 0.05
    (tmp_path / "theirs.yaml").write_text("extends: ours\n")
    with pytest.raises(InputError, match="line 1: extends: campaign 'ours' extends another one itself"):
        read_campaign(tmp_path / "theirs.yaml", environ)
    (tmp_path / "ours.yaml").write_text("extends: [esif-hpc-4]\n")
    with pytest.raises(InputError, match="extends must be the name of a campaign"):
        read_campaign(tmp_path / "ours.yaml", environ)


def test_a_file_that_extends_its_own_name_stands_in_place_of_the_one_of_the_suite(tmp_path: Path) -> None:
    environ = {"HPCBENCH_CAMPAIGNS": str(tmp_path)}
    (tmp_path / "esif-hpc-4.yaml").write_text("extends: esif-hpc-4\ntitle: Ours\n")
    ours = read_campaign(campaign_path("esif-hpc-4", environ), environ)
    assert (ours.title, len(ours.scenarios)) == ("Ours", 2)
    (tmp_path / "ours.yaml").write_text("extends: ours\n")
    with pytest.raises(InputError, match="campaign 'ours' extends another one itself"):
        read_campaign(tmp_path / "ours.yaml", environ)


def test_a_file_may_extend_one_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever the command runs; a fault in that one is told with its line there."""
    text = (CAMPAIGNS / "nersc10-deepcam.yaml").read_text()
    (tmp_path / "contract").mkdir()
    monkeypatch.chdir(tmp_path)
    base, ours = Path("contract/base.yaml"), Path("contract/ours.yaml")
    base.write_text(text)
    ours.write_text("extends: base.yaml\ntitle: Ours\n")
    assert (read_campaign(ours).title, len(read_campaign(ours).scenarios)) == ("Ours", 1)
    base.write_text(text.replace("replicates: 1", "replicates: none", 1))
    line = text[: text.index("replicates: 1")].count("\n") + 1
    with pytest.raises(InputError, match=rf"^contract/base.yaml, line {line}: scenarios\[0\].replicates \(none\)"):
        read_campaign(ours)
    ours.write_text("extends: base.yaml\ntitle: []\n")
    with pytest.raises(InputError, match=r"^contract/ours.yaml, line 2: title"):
        read_campaign(ours)


def test_committed_values_name_scenarios(tmp_path: Path) -> None:
    path = tmp_path / "ours.yaml"
    path.write_text("extends: esif-hpc-4\nacceptance:\n  - {scenario: s3, category: baseline, nodes: 8, value: 1}\n")
    with pytest.raises(InputError, match=r"line 3: acceptance\[0\].scenario: unknown name 's3'"):
        read_campaign(path)


def test_a_commitment_asks_for_no_more_runs_than_are_made(tmp_path: Path) -> None:
    path, promise = tmp_path / "ours.yaml", "nodes: 8, value: 1, repeats"
    path.write_text(f"extends: esif-hpc-4\nacceptance:\n  - {{scenario: s1, category: baseline, {promise}: 4}}\n")
    with pytest.raises(
        InputError, match=r"line 3: acceptance\[0\].repeats \(4\) is more than the replicates of s1 \(3\)"
    ):
        read_campaign(path)
    instances = f"{{scenario: cosmoflow-throughput, category: closed, {promise}: 20}}"
    path.write_text(f"extends: mlperf-hpc-3.0\nacceptance:\n  - {instances}\n")
    assert read_campaign(path).acceptance[0].repeats == 20, "there may be more instances than the fewest"


def test_what_is_fixed_is_a_setting_of_the_preset() -> None:
    """The recipe of NERSC-10 is the published one at its batch, with its own end and checkpoints."""
    entry = entry_of(shipped("nersc10-deepcam"), "deepcam", "baseline")
    published, own = resolve(entry.application, "mlperf-2048"), base_config(entry)
    assert (own.optim, own.schedule, own.model) == (published.optim, published.schedule, published.model)
