"""Engines that take turns, and what they took."""
