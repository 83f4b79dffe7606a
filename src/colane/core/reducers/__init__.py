"""What events and actions do to the state: a file for each thing that can happen to a job or a node."""
