"""The loop observe -> decide -> switch, its journal and its snapshots. Spark-free."""
