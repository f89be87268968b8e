"""Bodies of ``.npy`` and ``.npz`` files."""
