"""Models, from a folder to something that answers.

folder/                       what lies in the store, what a config.toml says, how one file is told from another
keeping/                      versions loaded side by side, swapped, unloaded; what is told of them
model                         one version: a request decoded, prepared, run, and made predictions
runs, response_cache          the run of a request, and outputs that are kept
batcher, sizing               runs of several requests together, and whether they are worth it
postprocessing                outputs made predictions and drawings
trial, sessions, quickness    a version tried before it serves, its session of the engine, how long a request takes
call                          a request to a model, as the scheduler takes it
lane                          threads with a queue, for work that runs no model
account, statistics           what was done, and how long it took
"""
