"""The loop, what parts of a policy must have, and what several mechanisms ask of jobs: run times, means of leaving."""
