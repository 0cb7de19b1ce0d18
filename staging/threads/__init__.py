"""Threads that work together: queues between them, and how many of them there are."""
