"""Pictures: from encoded bytes to the network's input, and coordinates back to the picture.

headers (size and needed parts of a file) -> decode (pixels) -> placement (position on the canvas) -> preprocess
(resizing and normalisation as configured). drawing and palette make pictures of predictions.
"""
