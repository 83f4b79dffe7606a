"""What callers may ask of the service, by noun."""
