"""The page: what it costs the queries of its process."""
