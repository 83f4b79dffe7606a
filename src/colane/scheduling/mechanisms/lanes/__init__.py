"""Lanes of a GPU: which jobs may join which (paper B)."""
