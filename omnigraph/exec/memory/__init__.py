"""What is derived from a table version and kept in memory: ids, columns, adjacency."""
