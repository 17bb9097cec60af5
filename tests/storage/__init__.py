"""Tests of the storage room, on real Lance in temporary folders and on an S3 server."""
