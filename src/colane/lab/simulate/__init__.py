"""The same core in virtual time: a driver, a world that says how fast things truly go, and what came of it.

`run.simulate` runs one workload under one policy; `worlds` holds the truth, `beliefs` what a policy starts from.
"""
