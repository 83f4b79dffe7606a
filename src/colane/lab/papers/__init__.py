"""The papers' own evaluations in simulation: each claim as published against what is found here.

A module for each paper, whose `evaluate(tables)` gives an `Evaluation` (`claims`); `lab/commands/paper.py` prints it.
"""
