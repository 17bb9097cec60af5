"""The query language: `.gq` text to a syntax tree and back. Names are not resolved here."""
