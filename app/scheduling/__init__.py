"""Scheduling of one model's requests: prepare, queue, run (alone or in a batch) and finish.

job         one request on its way, and the token that cancels it
run_queue   jobs by priority and deadline, which of them run next, and the threads that do the steps
config      the batching table of config.toml
admission   measured step times, the expected wait, and which requests are refused
scheduler   all of it for one served model
"""
