"""Reflexes and remedies: what keeps a run going, with the same result."""
