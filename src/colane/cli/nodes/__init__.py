"""`colane nodes`, `drain`, `topo`."""
