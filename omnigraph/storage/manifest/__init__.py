"""The manifest: visible table versions, branches, commit lineage, time travel."""
