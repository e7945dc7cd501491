"""Kafka and Delta, read and written without connectors of the JVM."""
