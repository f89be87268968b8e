"""Served models and versions: loading, replacing, unloading, and their counters.

store, version        models that are served, and their states
loader_pool           threads that load models, and the loading of one
watch                 changed files, and models that appear or disappear in the store
commands              loading and unloading by request
index, counters       models as plain data; counters summed over processes
"""
