"""Wire bytes <-> arrays. Everything hostile is measured before anything is allocated for it.

``parse`` picks the decoder by content type and turns a body into a ``Message``; the message's ``decode`` turns it into
inputs once the model is known, in the model's thread. A module or several for each form: json_*, forms and multipart,
arrays_body with numpy_files and zip_members. ``answers`` is the way back.
"""
