"""From operators as read to a built graph: rewritten (source_rewrites), linked (linking), inferred (inference).

export_diagnosis explains contradictions with the file; generalise makes a graph for any batch.
"""
