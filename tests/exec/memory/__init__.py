"""Tests of omnigraph/exec/memory."""
