"""Recurrent networks, which process a sequence step by step."""
