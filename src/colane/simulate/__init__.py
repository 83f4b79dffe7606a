"""The same core in virtual time: a driver, a world that says how fast things truly go, and what came of it."""
