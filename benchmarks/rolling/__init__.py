"""Rolling updates of server processes that are treated as a kubelet treats pods."""
