"""Filters that slide over signals, images and volumes, the patches they see, and padding."""
