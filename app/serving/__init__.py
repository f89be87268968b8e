"""What the service can do with models, without HTTP: ``DataPlane`` finds the version and hands its lane the work.

drawings has graphs drawn, once for all who ask.
"""
