"""The harness: trains, measures, submits, studies and analyses. It knows no science."""

__version__ = "0.1.0"
DISTRIBUTION = "hpcbench-ml"
"""Name of the distribution, as `pip install` knows it."""
