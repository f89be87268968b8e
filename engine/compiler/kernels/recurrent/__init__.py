"""Kernels that go through a sequence step by step: blocking and packing, cells, an inner function, the recurrence."""
