"""Scheduling of one model's requests: prepare, queue, run (alone or in a batch) and finish.

job         one request on its way, and the token that cancels it
run_queue   jobs by priority and deadline, and which of them run next, alone or together
config      the batching table of config.toml
admission   measured step times, the expected wait, and which requests are refused
worker      a pool of threads that are woken when there is work, and the steps they do
scheduler   all of it for one served model
"""
