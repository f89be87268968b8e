"""Task segmentation: a class for every pixel of a picture."""
