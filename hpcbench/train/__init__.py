"""The loop, evaluation, checkpoints and precision."""
