"""Planners that run next to the policy: guard, drains, search for cores, relief where memory runs short."""
