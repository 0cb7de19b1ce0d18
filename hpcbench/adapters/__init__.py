"""Runs models and datasets written for other training loops, unchanged: Lightning, plain torch, Hugging Face."""
