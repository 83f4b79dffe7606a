"""Word to owners of jobs: by a webhook, a command of the operator's, or mail; at least once, each with an id."""
