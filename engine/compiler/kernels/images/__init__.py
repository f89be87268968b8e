"""Kernels of images: resampling, regions of interest, deformable sampling, borders."""
