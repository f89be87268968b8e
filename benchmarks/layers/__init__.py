"""Operators that are measured one by one, at sizes from networks; torch is imported only to run one."""
