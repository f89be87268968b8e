"""Resampling of images, and regions of images."""
