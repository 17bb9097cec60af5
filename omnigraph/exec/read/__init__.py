"""The query executor: operators of a plan over one snapshot, from scan to result."""
