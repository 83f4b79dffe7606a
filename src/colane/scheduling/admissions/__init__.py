"""Who may start now, beside what fits."""
