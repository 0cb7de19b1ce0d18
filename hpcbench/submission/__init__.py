"""Submissions to MLPerf HPC: what to package, what is missing, the score to expect, and recipes to borrow."""
