"""What parts keep from plan to plan, told of changes; it could all be worked out anew."""
