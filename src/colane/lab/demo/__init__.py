"""`colane demo`: what sharing brings on this machine, measured."""
