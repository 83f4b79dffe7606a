"""How much each user and job has had: shares of users, attained service, rounds, past use."""
