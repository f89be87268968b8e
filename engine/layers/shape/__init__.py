"""The same elements in another shape or order, joined or split."""
