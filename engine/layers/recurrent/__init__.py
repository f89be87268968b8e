"""Networks that go through a sequence step by step."""
