"""Models: from a folder of files to predictions.

folder/                       layout of the store, config.toml, detection of changed files
registry/                     versions that are loaded, replaced and unloaded, and their counters
model                         one version: decode, prepare, run and postprocess a request
runs, response_cache          runs of requests, and cached outputs
batcher, batch_size_tuning    runs shared by several requests, and the batch sizes that pay off
postprocessing                predictions and drawings from outputs
dry_run, sessions             tuning run of a version before it serves, and its engine session
inline_policy                 choice of requests that run on the event loop
call                          request to a model, as the scheduler takes it
statistics                    counters and timings
"""
