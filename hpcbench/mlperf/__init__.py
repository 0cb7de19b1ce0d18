"""Results of MLPerf HPC, one's own and published: runs as records, from their official logs."""
