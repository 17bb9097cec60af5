"""Three-way merge of branches: merge base, decisions by entity, conflicts and their answers."""
