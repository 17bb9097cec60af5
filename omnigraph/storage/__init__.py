"""Storage: tables, manifest, branches, commits and their recovery.

Storage speaks table keys, Arrow schemas and rows. It never imports the catalog, and no other room
imports Lance.
"""
