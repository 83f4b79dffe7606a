"""Mechanisms: where offers come from."""
