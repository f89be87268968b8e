"""What the console shows that other routes do not tell: models as they are doing now, graphs to be walked through,
values on their way through a graph.

Plain data from models and descriptions; pages, routes and events are ``app/http``'s.
"""
