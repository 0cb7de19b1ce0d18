"""The harness: trains, measures, submits, studies and analyses. It knows no science."""

__version__ = "0.1.0"
