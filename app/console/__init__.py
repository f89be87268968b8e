"""Data for the console: layouts of graphs, values of operators, samples and profiles.

Pages, routes and events are in ``app/http``.
"""
