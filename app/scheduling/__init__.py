"""Who runs when: a request's steps, the one queue in front of a model's runs, and what may share a run.

ticket      whether anybody still wants the work
job         a request on its way: prepare, run, finish
waiting     jobs by priority and deadline
share       who goes together with whom, as config.toml has it (config)
pace        what runs take, and so how long the next request would wait
admission   who is let in, and who is told to come again, and when
threads     threads that are woken when there is something to do
scheduler   all of it for one served model
"""
