"""Inlining of subgraphs of control flow, where the shapes of the inputs decide what runs.

inlining     the graph for some shapes, in rounds: an inlined subgraph may decide further operators
trip_counts  trip count of a loop, as far as it is known before a run; limits of unrolling
unrolling    writes the iterations of loops, scans and maps one after the other
sequences    tensors of a list, so that operators read them directly
splice       the source being written: names, and operators of subgraphs under new names
"""
