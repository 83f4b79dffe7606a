"""Lanes of a GPU: who may join which (paper B)."""
