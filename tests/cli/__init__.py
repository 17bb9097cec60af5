"""Tests of the command line, each through a real process."""
