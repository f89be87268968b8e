"""From operators as read to operators joined (linking) and inferred (inference), and what contradicts the file.

causes, losses and in_place explain that, warning says it; generalise makes a graph for any batch.
"""
