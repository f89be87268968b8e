"""From a module to TorchScript: how it is traced, and what is done meanwhile for the converter to understand it."""
