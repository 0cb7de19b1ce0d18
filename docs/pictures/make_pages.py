"""Draws the pictures of docs/pages.md, with Chromium: ``python docs/pictures/make_pages.py FOLDER`` (minutes).

FOLDER, where it is empty, takes the runs and pages that the commands below write.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from PIL import Image

HERE = Path(__file__).parent
STUDIES = HERE.parent / "studies"
WIDTH, HEIGHT = 1000, 1150
COLOURS = 256
COMMANDS = (
    "hpcbench demo --preset smoke",
    "hpcbench demo --preset smoke --app cosmoflow --seed 2",
    "hpcbench report hpcbench-demo/runs/cosmoflow-* --out comparison.html",
    "hpcbench analyze --published --application deepcam --out analysis",
    "hpcbench predict deepcam --machine perlmutter-gpu --nodes 16,64,256 --page prediction.html",
    "hpcbench characterize cosmoflow --preset smoke --counts-only --page characterisation.html",
    "hpcbench campaign run nersc10-deepcam --rehearsal --campaign-dir campaign",
    "hpcbench campaign report campaign",
)
"""What writes the pages."""
MADE = {
    "run": "hpcbench-demo/runs/deepcam-*/report.html",
    "comparison": "comparison.html",
    "analysis": "analysis/analysis.html",
    "prediction": "prediction.html",
    "characterisation": "characterisation.html",
    "campaign": "campaign/campaign.html",
}
"""Where each page is then."""
RECORDED = {
    "convergence": STUDIES / "cosmoflow-convergence" / "study.html",
    "scaling": STUDIES / "cosmoflow-strong" / "scaling.html",
    "gains": STUDIES / "cosmoflow-gains" / "gains.html",
}
"""Pages of recorded studies."""


def main() -> None:
    """Make the pages, and a picture of the beginning of each."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    if not any(folder.iterdir()):
        for command in COMMANDS:
            words = [found for word in shlex.split(command) for found in expanded(word, folder)]
            subprocess.run(words, cwd=folder, check=True)
    pages = {name: next(folder.glob(pattern)) for name, pattern in MADE.items()} | RECORDED
    for name, path in pages.items():
        take_picture(path, HERE / f"page-{name}.png")


def expanded(word: str, folder: Path) -> list[str]:
    """A word of a command, or the folders that its pattern stands for."""
    return sorted(str(path.relative_to(folder)) for path in folder.glob(word)) if "*" in word else [word]


def take_picture(page: Path, target: Path) -> None:
    """The first screen of a page as a PNG of few colours."""
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--window-size={WIDTH},{HEIGHT}"]
    program = shutil.which("chromium") or shutil.which("chromium-browser") or "google-chrome"
    subprocess.run([program, *options, f"--screenshot={target}", page.resolve().as_uri()], check=True)
    picture = Image.open(target).convert("RGB")
    picture.quantize(COLOURS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(target, optimize=True)


if __name__ == "__main__":
    main()
