"""What a server tells Prometheus: which figures there are, where they are read, how those of workers become one."""
