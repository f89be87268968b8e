"""Batched matrix products with both factors computed at run time; attention uses their parts."""
