"""Bundles and the compiler: for whom one is (admission), the programs of one (carried), how one is made (writing)."""
