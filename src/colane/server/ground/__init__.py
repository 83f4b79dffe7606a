"""What all else of the service stands on: callers, refusals, what a caller may be told."""
