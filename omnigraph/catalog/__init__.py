"""What does the graph mean? A parsed schema becomes an accepted one.

Names are tied to ids that outlive renames, constraints are resolved to the properties they
bind, and the difference between two schemas becomes the steps that lead from one to the other.
"""
