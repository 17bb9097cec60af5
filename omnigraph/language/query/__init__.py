"""The query language: `.gq` text to a syntax tree, and its layout. Names are not resolved here."""
