"""The state and its indexes, what a policy sees of it, and the draft it decides in."""
