"""Reading, sending and writing in a pipeline of pieces."""
