"""Slurm's verbs on Colane: small programs that `colane shims DIR` writes. They import little, to answer at once."""
