"""A run of the reference: inputs held against the graph, operator after operator, watched."""
