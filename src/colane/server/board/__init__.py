"""What is durable now, and what a turn adds to it."""
