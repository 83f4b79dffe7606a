"""Nodes as the service sees them: alive, leased, drained."""
