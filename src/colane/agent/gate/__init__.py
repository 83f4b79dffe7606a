"""The gate of a node's lanes: whose turn it is, passed on between processes."""
