"""Samples of devices and jobs over time: beside the store, of less worth than it, and never in its way."""
