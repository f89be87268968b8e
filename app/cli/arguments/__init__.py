"""What is named on a command line: models, files, numbers, settings."""
