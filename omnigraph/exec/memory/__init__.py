"""In-memory copies of table versions for the read path: ids, columns, adjacency."""
