"""How large the house is, room by room: it may become less, and not more unnoticed."""
