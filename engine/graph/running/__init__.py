"""A run of the reference: inputs held against the graph (feeding), operator after operator (reference), watched."""
