"""Campaigns: the rules of a benchmark or a procurement as data, the runs that they ask for, and their response."""
