"""Predicts the time to solution on a machine, with its parts and intervals, from counts, facts and published runs."""
