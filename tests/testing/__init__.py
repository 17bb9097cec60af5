"""Tests of the test support that the package offers."""
