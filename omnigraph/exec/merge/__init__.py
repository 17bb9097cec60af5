"""Three-way merge of branches, reverts and restores: base, decisions, conflicts and answers."""
