"""Dataclasses of a run and how they are resolved; imports no torch."""
