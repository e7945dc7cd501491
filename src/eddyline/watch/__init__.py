"""What people see of a query: explanations, progress, reports. Spark-free: renders values only."""
