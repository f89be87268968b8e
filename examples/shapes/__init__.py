"""Parts of examples/train_shapes.py: images, network, loss, metrics."""
