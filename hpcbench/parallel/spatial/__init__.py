"""Layers whose samples are split over ranks in depth, height or width; see docs/parallelism.md."""
