"""The one writer: gathers what waits, asks the core once, commits once, then tells."""
