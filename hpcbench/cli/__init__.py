"""Command line: parsing only, each command a thin call."""
