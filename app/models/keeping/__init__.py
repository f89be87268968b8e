"""Which models and versions are served: loaded side by side, replaced, unloaded, and told of.

store, version        what is served, and what state it is in
loader_pool, loading  threads that load
watch, discovery      files that are replaced, models that come and go while they are served
orders                models that are loaded and unloaded when somebody says so
catalogue, tally      what is told of all that, of several processes as one
"""
