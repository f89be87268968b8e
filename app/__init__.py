"""The service: engines over HTTP.

process -> http -> serving -> models -> engine: the server process, what speaks HTTP, what can be done with models, and
the models. Beside that way: codec (bodies <-> arrays), images, tasks (outputs -> predictions), protocol (messages of
others), memory (what requests hold together), render (graphs as drawings), cli (``pnnx-serve``), measuring.
"""
