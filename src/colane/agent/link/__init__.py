"""What agent and scheduler tell one another, and what silence means."""
