"""Runs of the reference: inputs checked (feeding), operators executed (reference), values observed (watch)."""
