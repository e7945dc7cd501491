"""Sources of rows beyond what Spark reads by itself.

``reading`` makes DataFrames of ``eddyline.sources``. ``data_source`` runs in Spark's processes, and
``kept`` has what Spark keeps of a source. ``event_files`` matches files of events with a rule set
for the command line. Imports sets of rules and no run.
"""
