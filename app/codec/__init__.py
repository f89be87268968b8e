"""Wire bytes <-> arrays. Everything hostile is measured before anything is allocated for it.

``parse`` picks the decoder by content type and turns a body into a ``Message``; the message's ``decode`` turns it into
inputs once the model is known, in the model's thread. A room for each form of body: json, forms (multipart), arrays
(.npy and .npz). ``answers`` is the way back.
"""
