"""Results of MLPerf HPC, your own and published: runs as records, from their official logs."""
