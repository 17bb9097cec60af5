"""Tests of the exec room."""
