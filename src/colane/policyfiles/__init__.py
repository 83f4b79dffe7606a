"""Policies of users' own, in a file: loading them, and keeping the service going when one fails.

A registered policy is trusted; one from a file may raise, loop for ever or plan nonsense. `load` finds it, `budget`
bounds its time, `shape` looks at what it returns, `guard` puts them together.
"""
