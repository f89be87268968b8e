"""What a model is for: outputs -> predictions a person wants to know.

A task is one module with one class; ``registry.py`` is the table of them.
"""
