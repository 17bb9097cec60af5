"""Tests of omnigraph/exec/schema."""
