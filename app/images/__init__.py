"""Pictures: encoded bytes -> upright RGB or grey -> the network's input, and coordinates back again.

survey (what a file says of itself) -> decode (its pixels) -> placement (where they lie on the canvas) -> resize ->
preprocess, which does all that as config says. drawing, palette and png are for answers that are pictures.
"""
