"""Bundles for the compiler: host and engine check (admission), programs, writing."""
