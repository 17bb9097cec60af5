"""Tests of the policy room."""
