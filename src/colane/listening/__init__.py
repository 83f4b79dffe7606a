"""Listening for HTTP within limits, the same ones for whatever listens: what callers that are not known may take."""
