"""Ranks, process groups, gradient reduction and launch geometry."""
