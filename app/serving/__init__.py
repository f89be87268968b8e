"""What the service can do with models, without HTTP."""
