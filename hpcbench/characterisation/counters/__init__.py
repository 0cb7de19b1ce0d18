"""Bytes that other tools counted, read from their output; each reader is for one tool.

None of the tools was at hand where this was written: the readers follow the documented formats, and are untried on
output of the tools themselves.
"""
