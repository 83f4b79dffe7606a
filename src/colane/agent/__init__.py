"""Makes one node's desired jobs so: launches them, watches them, reports what they achieve."""
