"""Mutations: statements to pending rows to one staged write."""
