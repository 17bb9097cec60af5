"""What must be done? Queries and a catalog to a checked, engine-neutral plan. Pure."""
