"""Data for the console: live state of models, layouts of graphs, values of operators.

Pages, routes and events are in ``app/http``.
"""
