"""What is done to stores beside a scheduler: copies, checks, moves."""
