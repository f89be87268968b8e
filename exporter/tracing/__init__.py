"""From a module to TorchScript: tracing, and temporary changes so that the converter understands the trace."""
