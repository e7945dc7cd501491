"""The only room that imports pyspark: sessions, blocks, the engine, sources and sinks."""
