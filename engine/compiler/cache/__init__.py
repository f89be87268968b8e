"""Blueprints on disk: their names, their form, and the folder they lie in."""
