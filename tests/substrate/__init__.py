"""Each Lance behaviour the storage room relies on, pinned."""
