"""Batches of any size: where they lie, and how they are run."""
