"""Several jobs on one GPU: who joins whom, who takes whose place there, and who is parted again."""
