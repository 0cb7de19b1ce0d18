"""mllog, FLOPs, system description."""
