"""Sources of rows beyond what Spark reads by itself. Imports sets of rules and no run."""
