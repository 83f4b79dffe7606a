"""What starts agents: this machine today (`colane up`); Ray and Slurm have their room here."""
