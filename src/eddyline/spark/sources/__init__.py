"""Sources of rows beyond what Spark reads by itself.

``data_source`` makes data sources of Spark's from ``eddyline.sources``. ``event_files`` matches
files of events with a rule set for the command line. Imports sets of rules and no run.
"""
