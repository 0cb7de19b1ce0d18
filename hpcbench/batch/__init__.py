"""Batch jobs: what a job requests, what a site has, and the script that a scheduler reads."""
