"""`/metrics`: the text that Prometheus reads, written by hand."""
