"""Decoding of request bodies to arrays, and encoding of answers. Sizes are checked before memory is allocated.

``parse`` chooses the decoder by content type and turns a body into a ``Message``. The message's ``decode`` makes the
inputs when the model is known, in the model's thread. There is a decoder for JSON, forms (multipart), .npy, .npz and
images. ``answers`` encodes results.
"""
