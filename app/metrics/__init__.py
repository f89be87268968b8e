"""Prometheus metrics: definitions (families), collection over all workers (collector), and the page (exposition)."""
