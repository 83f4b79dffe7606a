"""One file for each family of recorded traces; `colane.traces.read` picks among them."""
