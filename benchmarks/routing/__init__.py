"""Routing: what orders of their own save for classes of rows."""
