"""Arrays of CPU cores, for jobs with GPUs and without (paper D)."""
