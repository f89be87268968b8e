"""Trees, vectors and features of the machine learning domain."""
