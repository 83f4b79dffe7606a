"""Which jobs may start now, in addition to what fits."""
