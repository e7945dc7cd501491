"""Rules, the suite ``sharing``: what thousands of rules cost in one pass."""
