"""From a job request to a job: limits, defaults, family, whether it could ever run."""
