"""The same elements under another shape, in another order, joined or cut."""
