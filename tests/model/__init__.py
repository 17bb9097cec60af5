"""Random histories of a whole graph against a model: features combined, thresholds lowered."""
