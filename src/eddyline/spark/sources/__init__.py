"""Where rows come from, beyond what Spark reads by itself."""
