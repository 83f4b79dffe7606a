"""Programs that stand between agent and job, and outlive the agent."""
