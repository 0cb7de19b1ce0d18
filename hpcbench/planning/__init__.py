"""What a training would need on a machine: memory and traffic of every mesh, counted without data."""
