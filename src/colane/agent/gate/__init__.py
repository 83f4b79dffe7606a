"""The gate of a node's lanes: which job has the turn, passed on between processes."""
