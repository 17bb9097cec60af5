"""Tests of omnigraph/storage/protocol."""
