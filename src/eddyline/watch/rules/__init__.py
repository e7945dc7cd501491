"""Sets of rules in words and figures."""
