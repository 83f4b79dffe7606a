"""Room for what other software needs of Colane: Slurm's verbs, Prometheus, submitit, Optuna. Empty yet."""
