"""Models: fitting segments, and queries on them beside the same queries on rows."""
