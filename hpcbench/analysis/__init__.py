"""The joint analysis: why one system is faster than another, from the records of runs, one's own and published."""
