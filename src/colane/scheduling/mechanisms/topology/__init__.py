"""Free GPUs, and which of them a job gets: by type, by node, by how they are connected."""
