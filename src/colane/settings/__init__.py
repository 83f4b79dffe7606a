"""What is set when a service starts: each setting once, whether it comes as a flag, a variable or a key of a file."""
