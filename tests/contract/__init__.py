"""One behaviour suite over every place a graph can live."""
