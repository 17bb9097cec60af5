"""Tests of the project as a whole: exports, imports, documents."""
