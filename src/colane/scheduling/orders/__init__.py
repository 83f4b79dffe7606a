"""Who is asked next, and whose place he may take."""
