"""Batches of any size: which axes carry them (batch_axes), and how they are run (batching)."""
