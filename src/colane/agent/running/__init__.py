"""The jobs of this machine while they run, are asked to save, end, and are cleaned up after."""
