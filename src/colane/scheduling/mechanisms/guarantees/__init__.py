"""GPUs that groups are guaranteed, and get back from whoever borrows them."""
