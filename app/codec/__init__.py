"""Wire bytes <-> arrays. Everything hostile is measured before anything is allocated for it.

``parse`` turns a body into a ``Message``; the message's ``decode`` turns it into inputs once the model is known.
"""
