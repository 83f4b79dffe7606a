"""HTTP clients of the scheduler: synchronous for people and scripts, asynchronous for agents."""
