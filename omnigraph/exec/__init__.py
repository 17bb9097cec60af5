"""Do it: read rows, stage writes. Arrow in and out, never a Lance handle."""
