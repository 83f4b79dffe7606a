"""What clients are shown of jobs and nodes."""
