"""Where the rows of a run go. A sink is one class and one line of ``SINKS``."""
