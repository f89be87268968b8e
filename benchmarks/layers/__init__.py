"""The operators that are measured one by one, at sizes they have in networks; torch is imported only to run one."""
