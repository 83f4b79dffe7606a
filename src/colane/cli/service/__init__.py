"""Scheduler and agent, started and kept; which users may use them."""
