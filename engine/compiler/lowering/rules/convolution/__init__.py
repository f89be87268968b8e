"""Lowering rules of convolutions, transposed and deformable ones too."""
