"""Bundles for the compiler: programs, with the check of host and engine; writing."""
