"""What is visible, and how does that change?

Storage speaks table keys, Arrow schemas and rows. It never imports the catalog, and no other room
imports Lance.
"""
