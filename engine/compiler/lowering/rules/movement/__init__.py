"""Lowering rules of operators that only move elements."""
