"""Folders on a node: where they are, on what, and how much they hold."""
