"""`colane submit`: from words, job files and scripts to job requests."""
