"""Accuracy of int8 networks; see ``__main__``."""
