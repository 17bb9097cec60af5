"""The shelf for Lance: every call into it, and all that is assumed about its files."""
