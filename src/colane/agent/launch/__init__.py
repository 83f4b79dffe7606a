"""From a placed job to a supervisor that runs: environment, user, cgroup, MPS, the last look at memory."""
