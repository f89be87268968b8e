"""From operators as read to operators joined (linking) and inferred (inference), and what contradicts the file.

export_diagnosis explains it; generalise makes a graph for any batch.
"""
