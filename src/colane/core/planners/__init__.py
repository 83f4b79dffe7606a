"""Planners beside the policy: the guard, drains, the search for cores, relief where memory runs short."""
