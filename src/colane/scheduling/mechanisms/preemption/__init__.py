"""Preemption: which jobs leave for a waiting one, and by what means."""
