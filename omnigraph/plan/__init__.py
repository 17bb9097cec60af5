"""Query planning: type checking and lowering of queries to an engine-neutral plan. Pure."""
