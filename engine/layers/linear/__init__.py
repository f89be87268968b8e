"""Products of vectors and matrices, their norms and distances, and tables."""
