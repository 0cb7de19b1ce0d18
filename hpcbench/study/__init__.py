"""Matrices of runs, and what is fitted to their results."""
