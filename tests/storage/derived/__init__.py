"""Tests of omnigraph/storage/derived."""
