"""What a scheduler that leads does by itself, beside what it is asked."""
