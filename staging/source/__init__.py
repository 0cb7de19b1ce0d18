"""What there is to bring: listings, indices, and readers of files and of rows."""
