"""The folder of a campaign: its rules as they were at the start, and a study for each category and scenario."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from hpcbench.campaign.read_rules import campaign_of
from hpcbench.campaign.rules import Campaign, Category, Scenario
from hpcbench.results.run_folder import write_atomic
from hpcbench.study.folder import StudyFolder, read_definition
from staging.errors import DataError, InputError

SCHEMA = 1


@dataclass(frozen=True)
class Definition:
    """What ``campaign.json`` holds."""

    campaign: Campaign
    rehearsal: bool


class CampaignFolder:
    """``campaign.json``, the studies ``CATEGORY/SCENARIO/``, and what a report writes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.definition = path / "campaign.json"
        self.data = path / "data"
        self.table = path / "response.txt"
        self.response = path / "response.csv"
        self.page = path / "campaign.html"

    def study(self, category: Category, scenario: Scenario) -> StudyFolder:
        """The study of a scenario in a category."""
        return StudyFolder(self.path / category.name / scenario.name)

    def read(self) -> Definition | None:
        """The definition; ``None`` if there is none. Raises ``DataError`` for one that cannot be read."""
        values = read_definition(self.definition, SCHEMA, "campaign")
        if values is None:
            return None
        if not isinstance(values.get("rules"), dict):
            raise DataError(self.definition, "has no rules", "give another folder")
        return Definition(campaign_of(values["rules"], self.definition), bool(values.get("rehearsal")))

    def open(self) -> Definition:
        """The definition of a folder that has one. Raises ``InputError`` for any other."""
        definition = self.read() if self.path.is_dir() else None
        if definition is None:
            raise InputError(f"{self.path} holds no campaign.json; give the --campaign-dir of a campaign")
        return definition

    def withdraw(self) -> None:
        """Remove the definition if no study has begun, with the folders that are then empty."""
        if any(self.path.glob("*/*/study.json")):
            return
        self.definition.unlink(missing_ok=True)
        for path in (*self.path.glob("*/*"), *self.path.glob("*"), self.path):
            if path.is_dir() and not any(path.iterdir()):
                path.rmdir()

    def begin(self, campaign: Campaign, rehearsal: bool) -> None:
        """Write the definition into a new folder. Raises ``InputError`` if the folder belongs to something else."""
        before = self.read()
        if before is None:
            if self.path.exists() and (not self.path.is_dir() or any(self.path.iterdir())):
                raise InputError(
                    f"{self.path} is not empty and holds no campaign; give a new folder with --campaign-dir"
                )
            try:
                self.path.mkdir(parents=True, exist_ok=True)
                text = json.dumps({"schema": SCHEMA, "rehearsal": rehearsal, "rules": asdict(campaign)}, indent=2)
                write_atomic(self.definition, text + "\n")
            except OSError as error:
                raise InputError(
                    f"{self.path} cannot be written ({error.strerror}); give another --campaign-dir"
                ) from None
            return
        if before.campaign.name != campaign.name:
            raise InputError(f"{self.path} holds campaign {before.campaign.name}, not {campaign.name}; give another "
                             "--campaign-dir")  # fmt: skip
        if before.rehearsal != rehearsal:
            kind = "a rehearsal" if before.rehearsal else "no rehearsal"
            raise InputError(f"{self.path} holds {kind}; give another --campaign-dir")
        if json.dumps(asdict(before.campaign)) != json.dumps(asdict(campaign)):
            raise InputError(
                f"{self.path} was made with other rules of {campaign.name} than today's; give another --campaign-dir"
            )
