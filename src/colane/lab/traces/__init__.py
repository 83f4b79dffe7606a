"""Workloads and clusters: readers of recorded traces and measured tables, generators, descriptions of machines.

`read.read` reads a trace, `generate` makes one up, `clusters.load` gives machines to run it on, `check.check_trace`
judges both before a run, and `tables` holds measured speeds. Nothing here decides anything.
"""
