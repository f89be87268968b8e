"""Attention, its heads, and the modules around them."""
