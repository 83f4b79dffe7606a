"""What callers do, a row a verb: routes, client, commands, assistants, Slurm's words and buttons come from it."""
