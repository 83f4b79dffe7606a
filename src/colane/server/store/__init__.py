"""What is durable: the protocol of a store, stores, and the form in which records are written."""
