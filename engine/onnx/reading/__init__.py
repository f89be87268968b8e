"""A file as messages and arrays.

source      the file read, and found to be a model
wire        its messages without their large tensors
tensors     those as views of the file
attributes, labels   values of attributes, names of classes
library     the package that knows ONNX's messages
"""
