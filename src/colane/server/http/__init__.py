"""The REST API: callers, what they may ask, every route, and every answer to a request that is refused."""
