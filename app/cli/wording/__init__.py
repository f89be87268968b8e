"""What the command line says of results and failures."""
