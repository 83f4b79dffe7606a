"""Policies, one file each, built from shared blocks; none imports another. `registry` knows them by name."""
