"""The harness: trains, measures, submits, studies and analyses. It knows no science."""

try:
    from hpcbench._version import __version__
except ModuleNotFoundError:  # a checkout from which nothing has been installed
    __version__ = "0+unknown"

__all__ = ["DISTRIBUTION", "__version__"]

DISTRIBUTION = "hpcbench-ml"
"""Name of the distribution, as `pip install` knows it."""
