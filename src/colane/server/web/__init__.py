"""Room for pages of the scheduler that people look at. Empty yet."""
