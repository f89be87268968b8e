"""Experiments on one model beside its serving session: tuning of options, and comparison of values.

Experiments open sessions of their own; served models are not changed.

sessions     settings to measure, a session for each on the served graph, and its inputs
tuning       measurement of all candidates in turn, each checked against the reference first
comparing    one input through models, versions and back ends
"""
