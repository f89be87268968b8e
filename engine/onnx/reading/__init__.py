"""A file as messages and arrays.

source      the file, read and checked to be a model; the onnx package
wire        its messages without their large tensors
tensors     those tensors as views of the file
attributes  values of attributes, names of classes
"""
