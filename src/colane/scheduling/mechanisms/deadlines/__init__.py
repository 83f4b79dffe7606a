"""Deadlines that are promised at submission, and kept."""
