"""Builders of the derived topology files: node dictionaries and adjacency on disk."""
