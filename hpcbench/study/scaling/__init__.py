"""Scaling studies: the same training on growing numbers of nodes, and what that costs."""
