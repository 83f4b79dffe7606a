"""A whole cluster in one process under one virtual clock, with every fault drawn from a seed.

The scheduler is the real service over a store in memory; of the agent its word with the scheduler, its lease, its
membership and what it does about what shall run are the real ones; processes, disks and the network are doubles.
"""
