"""Execution of executables.

program (callable) -> instance (its memory, one run at a time) -> team (its threads, which follow protocol over tables)

Three owners are global to the process. program_cache keeps the instances of all graphs within a budget of bytes.
compile_queue compiles programs in the background. worker_pool keeps threads waiting between runs. batch_split runs the
parts of a batch in parallel, and report describes a measured run.
"""
