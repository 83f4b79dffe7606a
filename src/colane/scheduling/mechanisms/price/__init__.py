"""One value for every decision about jobs of one GPU: what a GPU is worth, and what a change is."""
