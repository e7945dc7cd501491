"""Explanations of what runs: sections as values, and how people see them.

In: facts of operators, records of batches and the journal. Out: sections, which the terminal, the
HTML report, the page (``serve/``) and JSON render; progress; metrics; and the view that a
checkpoint keeps. Nothing here changes a run, and a failure to explain never ends one.

Read ``sections`` (the values), ``formatting`` (numbers as texts), ``decisions`` (the journal in
words), ``series`` (batches and learned orders as figures); then the words of an operator in the
module of its name (``filters``, ``rules``, ``joins``, ``aggregates``, ``models``, ``alarms``, and
``clock`` for event time), and ``progress`` (the lines of each kind of record); then what renders:
``terminal``, ``html`` with ``figures`` and ``templates/``, ``metrics``. ``system`` has the rows of
the stream about the system. ``stored`` writes and reads what a checkpoint keeps for people.

A new operator gets a module here with ``sections`` (which ``Operator.describe`` returns), and a
line of ``progress.LINES``. A new kind of part is a class of ``sections`` that each renderer
handles. A new metric is a ``MetricKind`` of ``metrics.KINDS``. Only the operators' modules and
``progress`` name an operator. The room imports what stands above it, and never Spark.
"""
