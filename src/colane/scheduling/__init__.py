"""One loop, a table of named compositions, and their parts: orders, sizers, sources, choices, admissions."""
