"""Measured tables of the field: how fast which job runs where, alone and in company. One file for each source.

They hold what was measured and nothing else: a lookup outside a table gives None, never a guess.
"""
