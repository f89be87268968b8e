"""Prometheus metrics: definitions and collection over all workers (collector), and the page (exposition)."""
