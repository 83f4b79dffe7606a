"""What lies in the agent's directory: of each attempt, of what was heard, and how it is removed."""
