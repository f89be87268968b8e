"""Models, from a folder to something that answers.

repository, layout, config    what there is in the store, and what its config.toml says
store, crew, loading, trial   versions loaded side by side, compiled, tried
model                         one request through one version: decoded, prepared, run, made predictions
batcher, sizing               runs of several requests, and whether they are worth it
call                          a request to a model, as the scheduler takes it
lane                          threads with a queue, for work that runs no model
watch, roster, identity       files that are replaced, models that come and go while they are served
demand                        models that are loaded and unloaded when somebody says so
catalogue, statistics, tally  what is told of all that, of several processes as one
"""
