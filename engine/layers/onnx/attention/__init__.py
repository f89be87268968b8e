"""Attention, and what stands for it in linear time."""
