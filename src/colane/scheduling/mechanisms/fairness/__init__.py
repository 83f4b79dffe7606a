"""Who has had how much: shares of users, attained service, rounds, past use."""
