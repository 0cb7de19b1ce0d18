"""Job specification to job script, and submission."""
