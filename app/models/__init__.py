"""Models, from a folder to something that answers.

folder/                       what there is in the store, what its config.toml says, how one file is told from another
keeping/                      versions loaded side by side, swapped, unloaded; what is told of them
model, trial, sessions        one request through one version: decoded, prepared, run, made predictions; tried first
batcher, sizing               runs of several requests, and whether they are worth it
call, response_cache          a request to a model, as the scheduler takes it, and answers that are known already
lane                          threads with a queue, for work that runs no model
account, statistics           what was done, and how long it took
"""
