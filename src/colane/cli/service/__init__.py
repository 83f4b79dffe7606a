"""Scheduler and agent, started and kept; who may use them."""
