"""The papers' own evaluations in simulation: each claim as published against what is found here.

A module for each paper, whose `evaluate(tables, effort)` gives an `Evaluation` (`claims`); `lab/commands/paper.py`
prints it. Tables are a directory of measured ones, None that of `COLANE_DATA`; the effort says how much is run.
"""
