"""Tests of omnigraph/storage/manifest."""
