"""Room for a job that others make: who leaves, and by what means."""
