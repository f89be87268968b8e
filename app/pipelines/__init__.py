"""Pipelines: models made of models of the store, each described by a ``pipeline.toml``.

config     schema of the file
reference  names of values in it: an input of the request, a field of predictions, an output
part       what a pipeline needs of a model, which `app.models.servable.Servable` offers
plan       steps checked against the models that they name
nesting    pipelines in pipelines, and the models of a store
crops      crops of a decoded picture, at boxes and at polygons
items      what the steps of a request run on and what they found
description  the steps as a graph
execution  the steps of one request, one after the other
pipeline   the served model
"""
