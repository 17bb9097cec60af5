"""What the graph means: names and stable identities, constraints, schema changes."""
