"""Tests of omnigraph/exec/values."""
