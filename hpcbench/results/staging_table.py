"""The staging report as rows of a run's page."""

from __future__ import annotations

import json
from typing import Any

from hpcbench.results import units
from hpcbench.results.plots import words
from hpcbench.results.records import Run, read_object
from staging.errors import DataError
from staging.probing.bottleneck import BUSY_WORDS
from staging.probing.ceilings import WORDS


def staging_pairs(run: Run) -> list[tuple[str, str]]:
    """The staging report in a few lines, where data were staged. Raises ``DataError`` for a damaged one."""
    report = read_object(run.folder.staging)
    if not isinstance(report.get("ranks"), list):
        return [(words(name), _quantity(name, value)) for name, value in report.items()]
    try:
        return _staging_lines(report)
    except (KeyError, TypeError) as error:
        problem = f"is not a staging report ({type(error).__name__}: {error})"
        raise DataError(run.folder.staging, problem, "delete it to report without it") from None


def _staging_lines(report: dict[str, Any]) -> list[tuple[str, str]]:
    how = [str(report["placement"]), str(report["path"]), *([report["transform"]] if report["transform"] else [])]
    caches = "/".join(sorted({node["cache"] for node in report["nodes"]}))
    flushed = "flushed to the device" if report["flushed"] else "not flushed to the device"
    skipped = f", {units.integer(report['skipped'])} were there already" if report["skipped"] else ""
    slowest, median = units.duration(report["slowest_node_s"]), units.duration(report["median_node_s"])
    return [
        ("source", str(report["source"])),
        ("destination", str(report["destination"])),
        ("how", ", ".join(how)),
        ("files landed", f"{units.integer(report['files'])}, {units.size(report['bytes_landed'])}{skipped}"),
        ("read from the source", f"{units.size(report['bytes_read'])} ({caches})"),
        ("seconds", f"{units.duration(report['seconds'])}, {flushed}; checksums: {report['verify']}"),
        ("slowest node", f"{report['slowest_node']}, {slowest}; median {report['median_node']}, {median}"),
        ("bound by", _bound(report)),
    ]


def _bound(report: dict[str, Any]) -> str:
    share = units.percent(report["bound_share"])
    if report["bound_basis"] != "probe":
        said = BUSY_WORDS.get(report["bound_by"], words(report["bound_by"]))
        return f"{said}, {share} of the time; no ceiling was probed (hpcbench stage --probe)"
    parts = [f"{WORDS.get(other['part'], other['part'])} {units.percent(other['share'])}" for other in report["shares"]]
    return f"of the probed ceilings: {', '.join(parts)}" if parts else "nothing moved"


def _quantity(name: str, value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value if isinstance(value, str) else json.dumps(value)
    if name.endswith("bytes_per_s"):
        return f"{units.size(value)}/s"
    if "bytes" in name:
        return units.size(value)
    if name == "seconds" or name.endswith("_s"):
        return units.duration(value)
    return units.integer(value) if isinstance(value, int) else units.significant(value)
