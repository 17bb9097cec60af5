"""Tests of omnigraph/storage/lance."""
