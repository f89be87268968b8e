"""The bytes of files and the memory of the machine: read within limits, held in blocks, shared between processes."""
