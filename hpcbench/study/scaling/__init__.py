"""Scaling studies: the same training on more and more nodes, and what that costs."""
