"""Write the response of a campaign: a table, a CSV file and a page."""

from __future__ import annotations

from hpcbench.campaign.content import csv_text, read_content, text_of
from hpcbench.campaign.folder import CampaignFolder
from hpcbench.campaign.page import write_campaign_page
from hpcbench.exits import DONE, TARGET_NOT_REACHED
from hpcbench.results.run_folder import write_atomic
from hpcbench.study.progress import say


def report(folder: CampaignFolder) -> int:
    """Write the response from the run folders alone, say where it is, and return the exit code.

    The code is 3 unless every committed value is met. Raises ``InputError`` if no run is done.
    """
    definition = folder.open()
    content = read_content(folder, definition)
    text = text_of(content)
    write_atomic(folder.table, text + "\n")
    write_atomic(folder.response, csv_text(content))
    write_campaign_page(content, folder)
    say(f"{text}\n\ntable: {folder.response}\npage: {folder.page}")
    return DONE if all(accepted.verdict == "met" for accepted in content.acceptance) else TARGET_NOT_REACHED
