"""Frozen types that every room shares: jobs, hardware, placements, profiles, plans, reasons.

Standard library only. Units are the last part of a name. Ids break every tie.
"""
