"""Tests of omnigraph/storage/locks."""
