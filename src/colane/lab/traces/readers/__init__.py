"""One file for each family of recorded traces; `colane.lab.traces.read` picks among them."""
