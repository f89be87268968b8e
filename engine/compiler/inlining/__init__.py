"""Inlining of subgraphs of control flow, where the shapes of the inputs decide what runs.

inlining   the graph for some shapes, in rounds: an inlined subgraph may decide further operators
rewriting  one round: walks the operators and writes a new source
turns      trip count of a loop, as far as it is known before a run
unrolling  writes the iterations of loops, scans and maps one after the other
sequences  tensors of a list, so that operators read them directly
splice     the source being written: names, and operators of subgraphs under new names
budget     limits of graph growth and of analysis
"""
