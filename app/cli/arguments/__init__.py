"""Parsing of models, files, numbers and settings given on the command line."""
