"""On which GPUs of one node, or of several, a job lies."""
