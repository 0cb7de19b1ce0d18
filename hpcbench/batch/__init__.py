"""Batch jobs: what a job asks for, what a site has, and the script that a scheduler reads."""
