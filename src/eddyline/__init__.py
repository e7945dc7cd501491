"""eddyline: continuous queries on Spark that keep finding their cheapest plan while they run."""
