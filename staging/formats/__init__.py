"""Readers and writers of the published on-disk formats."""
