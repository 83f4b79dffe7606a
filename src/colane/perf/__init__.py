"""What is believed about speed and memory, and how observation changes it."""
