"""Commands of those who study: simulate, report, profile, papers, traces."""
