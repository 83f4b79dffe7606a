"""Commands for studies: simulate, report, profile, papers, traces."""
