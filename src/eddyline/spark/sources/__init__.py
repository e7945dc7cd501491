"""Sources of rows beyond what Spark reads by itself.

``event_files`` reads files of events, matches them with a rule set, counts what fires and writes
what matched, for the command line. Imports sets of rules and no run.
"""
