"""Rows reduced, normalised, compared."""
