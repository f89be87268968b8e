"""Compiled programs on disk: fingerprints, the format of entries and facts, and the trusted folder."""
