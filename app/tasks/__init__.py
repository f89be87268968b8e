"""Tasks: from a model's outputs to predictions.

A task is a class that defines its table in config.toml, the parameters of a request, the type of its answer and an
example of it. ``registry.py`` lists all tasks; config, API and documentation are derived from that list.
"""
