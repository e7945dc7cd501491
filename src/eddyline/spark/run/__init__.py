"""The life of a running query, for any operators: prepare, lay, run, commit, learn."""
