"""Change detection: what detectors save against fixed windows, and how well they find."""
