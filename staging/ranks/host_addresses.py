"""Addresses at which the other ranks may reach this host."""

from __future__ import annotations

import socket

LOOPBACK = "127.0.0.1"


def own_addresses(one_node: bool) -> list[str]:
    """Addresses of this host, best first: its host name's, its interfaces', loopback; with one node, only loopback."""
    if one_node:
        return [LOOPBACK]
    import psutil

    named = [address for address in resolve(socket.gethostname()) if not address.startswith("127.")]
    interfaces = [
        entry.address
        for entries in psutil.net_if_addrs().values()
        for entry in entries
        if entry.family == socket.AF_INET and not entry.address.startswith("127.")
    ]
    # Loopback comes last, for several Slurm daemons that act as nodes on one host.
    return list(dict.fromkeys([*named, *interfaces, LOOPBACK]))


def resolve(name: str) -> list[str]:
    """Internet addresses of the host ``name``; none if it is not known."""
    try:
        addresses = socket.getaddrinfo(name, None, family=socket.AF_INET, type=socket.SOCK_STREAM)
    except OSError:
        return []
    return list(dict.fromkeys(str(entry[4][0]) for entry in addresses))
