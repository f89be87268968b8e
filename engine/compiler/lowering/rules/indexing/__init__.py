"""Elements and pixels that other values name."""
