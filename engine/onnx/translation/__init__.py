"""From the messages of a file to a graph of ordinary operators.

translate      node after node, bodies and functions among them
scope, declarations   names and what they stand for, what the file says of them
registry, node, value what a translator is found by, given, and gives
builder        operators made, with shapes and constants that follow
functions      operators that are functions
joining, attention    operators that stand for one
"""
