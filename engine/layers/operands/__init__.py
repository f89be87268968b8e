"""Checks of operands that layers share: axes, dtypes, shapes, and views that stay within memory."""
