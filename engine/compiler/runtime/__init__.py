"""An executable at work.

program (callable) -> instance (its memory, one run at a time) -> team (its threads, as protocol says, over tables)

Three owners, one a process: program_cache keeps the instances of all graphs within a budget of bytes, compile_queue
makes more of them while others run, worker_pool keeps threads waiting between runs.
batch_split runs the parts of a batch in parallel; report says what a run took.
"""
