"""What examples/train_shapes.py is made of: the pictures, the network, its loss and how well it does."""
