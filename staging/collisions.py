"""Refuses entries of the source that become files of the same name: before anything moves, as far as names tell.

The members of an archive, and what an application's function makes, are known only as they land. Within a rank they
are checked before anything is overwritten; among ranks and nodes, at the end of the staging, from the manifests.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from staging.errors import DataError
from staging.landing.file_sink import two_of_one_name
from staging.landing.transform_exclusions import landed_names
from staging.ledger.manifest import Manifest
from staging.options import StageOptions
from staging.planning.plan import Plan
from staging.present import folders_above
from staging.ranks.collective_errors import together
from staging.ranks.world import World
from staging.source.listing import Listing

Made = tuple[str, str]
"""The name of a file, and the entry that became it."""


def refuse_collisions(options: StageOptions, listing: Listing) -> None:
    """Raise ``DataError`` if two entries would land under the same name, or one below the other."""
    if not options.transform:
        return
    sources = known_sources(options, listing)
    if (taken := min(folders_above(sources) & sources.keys(), default=None)) is not None:
        below = min(name for name in sources if name.startswith(f"{taken}/"))
        problem = f"would land as {taken}, and {sources[below]} below that, as {below}"
        raise DataError(options.source / sources[taken], problem, "exclude one of them")


def known_sources(options: StageOptions, listing: Listing) -> dict[str, str]:
    """Map the files that entries become, as far as their names tell, to the entry of each.

    Raises ``DataError`` if two entries become the same file.
    """
    landed, sources = landed_names(options.transform, options.plain), dict[str, str]()
    for entry in listing.names:
        for name in landed(entry):
            if (other := sources.setdefault(name, entry)) != entry:
                raise two_of_one_name(name, options.source / entry, other)
    return sources


def refuse_landed_collisions(options: StageOptions, plan: Plan, destination: Path, world: World) -> None:
    """Raise ``EveryRankError`` if two entries have landed under the same name, on one node or on two; collective.

    Such files are marked as doubtful in the manifest, so that they are brought again once the collision is resolved.
    """
    landed = landed_names(options.transform, options.plain)
    if all(map(landed, plan.listing.names)):
        return
    is_first = world.place.local_rank == 0
    own_claims = together(world, lambda: claims(options, plan.listing, Manifest(destination)) if is_first else [])
    is_sharded = bool((plan.home >= 0).any())
    everywhere = world.all_gather(own_claims) if is_sharded else [own_claims]

    def judge() -> None:
        if is_first:
            refuse_shared_names(
                options, plan.listing, Manifest(destination), (claim for part in everywhere for claim in part)
            )

    together(world, judge)


def claims(options: StageOptions, listing: Listing, manifest: Manifest) -> list[Made]:
    """What has landed from entries whose content alone tells what they become."""
    landed = landed_names(options.transform, options.plain)
    rows = zip(listing.names, listing.mtimes_ns.tolist(), listing.sizes.tolist(), strict=True)
    as_now = {entry: (mtime_ns, size) for entry, mtime_ns, size in rows if not landed(entry)}
    made = (claim for claim in manifest.records().claims() if claim.source in as_now)
    return [(claim.name, claim.source) for claim in made if claim.is_of(*as_now[claim.source])]


def refuse_shared_names(options: StageOptions, listing: Listing, manifest: Manifest, made: Iterable[Made]) -> None:
    """Raise ``DataError`` if an entry of ``made`` became a file that another entry became, too."""
    sources = known_sources(options, listing)
    twice = [(name, entry, other) for name, entry in made if (other := sources.setdefault(name, entry)) != entry]
    if twice:
        records = manifest.records()
        manifest.doubt([records[name] for name in sorted({name for name, *_ in twice}) if name in records])
        name, entry, other = min(twice)
        raise two_of_one_name(name, options.source / entry, other)
