"""Commands that look at jobs, or change them."""
