"""The joint analysis: why one system is faster than another, from the records of runs, your own and published."""
