"""Matrices of runs, and the fits to their results."""
