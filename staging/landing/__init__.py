"""Turns bytes into files: sinks, transforms, archives."""
