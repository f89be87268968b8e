"""A blueprint at work.

program (callable) -> instance (its memory, one run at a time) -> team (its threads, as protocol says, over tables)
instances has one for each set of shapes, background makes more while others run, shelf decides what is kept, parking
which threads stay; report says what a run took. Parts of a batch run apart, each on one thread, and write into what is
joined.
"""
