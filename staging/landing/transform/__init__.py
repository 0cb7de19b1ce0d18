"""The transforms that files can go through between reading and writing."""
