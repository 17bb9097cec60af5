"""The rule set of a schema: constraints over rows and over keys, and how a breach is said."""
