"""From the messages of a file to a graph of ordinary operators.

translate      node by node, including subgraphs and functions
scope          names, the values they stand for, and the shapes that the file declares
registry, node, value   how a translator is found, its argument, its results
builder        makes operators, infers shapes and folds constants
functions      operators that are functions
joining        patterns of operators replaced by one operator
"""
