"""Run folders, comparison, plots and the report."""
