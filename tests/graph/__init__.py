"""Tests of the graph room: the public door."""
