"""Sound in requests: decoding, resampling, features, and the inputs of a model for sounds.

Needs the extra ``audio`` (the libraries ``soundfile`` and ``soxr``).
"""
