"""Which job is asked next, and which jobs' places it may take."""
