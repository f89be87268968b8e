"""Models: from a folder of files to predictions.

folder/                       layout of the store, config.toml, detection of changed files
registry/                     versions that are loaded, replaced and unloaded, and their counters
model                         one version: its requests as the scheduler takes them, and those run on the event loop
runs, response_cache          runs of requests, their verification, and cached outputs
recorder                      last requests on disk, for quantising
batcher                       runs shared by several requests, and the batch sizes that pay off
postprocessing                predictions and drawings from outputs
sessions                      engine session of a version
statistics                    counters and timings
"""
