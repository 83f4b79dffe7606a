"""Reports of finished jobs, live or simulated: metrics, tables, figures and one HTML page."""
