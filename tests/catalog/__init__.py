"""Tests of the catalog room."""
