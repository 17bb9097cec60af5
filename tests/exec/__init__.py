"""Tests of omnigraph.exec."""
