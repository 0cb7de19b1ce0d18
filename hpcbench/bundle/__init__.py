"""Packs hpcbench with its dependencies into an archive that installs on a machine without a network."""
