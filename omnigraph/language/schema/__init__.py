"""OmniGraph."""
