"""What a staging can bring: listings, indices, and readers of files and of rows."""
