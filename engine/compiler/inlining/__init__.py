"""Bodies put among the operators around them, where the shapes of the inputs decide what a run does with them.

inlining   the graph for some shapes, round by round: what is put in place may decide what comes next
rewriting  one round: walks the operators, and writes another source
turns      how often a loop runs, as far as that is known ahead
unrolling  writes the turns of loops, scans and maps one after the other
sequences  which tensors a list holds, so that whoever asks for one is given it
splice     the source being written: names, and operators of bodies under new ones
budget     how large a graph may grow, and how much may be looked at to find out
"""
