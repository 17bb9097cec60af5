"""Clusters: graphs, stored queries, policies and embedding providers, declared in `cluster.yaml`.

    cluster.yaml ─▶ desired resources ─▶ plan against the ledger ─▶ apply ─▶ one swap of the ledger

Invariant: the ledger is the one publish point. A server reads what it says was applied, never what
is declared, and an apply that is cut off at any step is finished or undone by the next one.
"""
