"""Pure rules of one GPU: the safety condition, lanes, turns."""
