"""Room for what other software needs of Colane: Prometheus and Grafana so far."""
