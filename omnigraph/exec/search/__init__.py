"""Text search (BM25), vector search, their ranks, and the embeddings they need."""
