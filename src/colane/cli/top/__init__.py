"""`colane top`: the cluster on one screen."""
