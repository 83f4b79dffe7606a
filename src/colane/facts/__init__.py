"""What is told of a job, said once: every screen, answer and export draws these figures and derives none of its own."""
