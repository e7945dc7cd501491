"""Rule sets on Spark: one Arrow UDF over all rules, and the driver's half of their loop."""
