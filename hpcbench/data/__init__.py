"""Samplers, loaders and the simulation harness over the readers in staging.formats."""
