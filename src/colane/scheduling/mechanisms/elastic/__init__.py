"""How many GPUs each elastic job gets, and how running ones come to have them (paper E)."""
