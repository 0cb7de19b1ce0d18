"""Measures what the parts can do, and finds what bound a staging."""
