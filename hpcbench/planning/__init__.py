"""What training would need on a machine: the memory and traffic of every mesh, counted without data."""
