"""A folder each: where its candidates come from, what it keeps from plan to plan, how it moves jobs that run."""
