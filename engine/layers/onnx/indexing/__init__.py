"""Gathering, scattering and searching of elements."""
