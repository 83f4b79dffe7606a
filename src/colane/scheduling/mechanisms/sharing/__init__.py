"""Several jobs on one GPU: which job joins which, takes which one's place there, and which are separated again."""
