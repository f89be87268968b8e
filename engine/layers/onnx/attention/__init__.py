"""Attention and linear attention."""
