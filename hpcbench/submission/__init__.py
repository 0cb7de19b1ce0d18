"""Submissions to MLPerf HPC: what to package, what is missing, what to expect of it, and recipes to borrow."""
