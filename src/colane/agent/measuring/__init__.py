"""What jobs and this machine achieve: steps, processor time, memory, bandwidth."""
