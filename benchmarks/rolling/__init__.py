"""Is a request lost when a version takes the place of another? Processes that are treated as a kubelet treats pods."""
