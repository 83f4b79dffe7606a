"""What policies share: orderings, placers, sharing rules, refusals."""
