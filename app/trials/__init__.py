"""Ways to run one model, tried beside the one in service: measured against each other, and their values compared.

Sessions are opened for it and closed again; no model that serves is touched.

candidates   which ways there are, as somebody asks for them
sessions     a session for each, on the graph that serves
tuning       all of them run in turn, each held against the reference first
inputs       what they run on
comparing    the same input through models, versions and back ends: entries (which), values (between their operators)
advice       what to write down so that a model runs in one of these ways
"""
