"""Bytes that other tools counted, read from their output; each reader is for one tool.

None of the tools was available when this was written. The readers follow the documented formats, and are untested on
output of the tools themselves.
"""
