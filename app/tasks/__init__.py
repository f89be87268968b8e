"""What a model is for: outputs -> predictions a person wants to know.

A task is a module, or a folder, with one class: its table in config.toml, the parameters of a request, what it answers
and an example of it are the class's own. ``registry.py`` is the table of tasks; all else is put together from that.
"""
