"""Moves datasets to node-local storage and reads them: files, formats, MPI and threads; no torch."""
