"""Threads that work together: queues between them, and how many there are."""
