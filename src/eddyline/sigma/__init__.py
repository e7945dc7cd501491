"""Sigma rules as a set of rules (extra ``sigma``).

pySigma reads them.

In: files, folders or texts of Sigma rules, correlations and filters. Out: rule trees over the
columns of events, which ``rules/`` evaluates, and the events of each log source.

Invariant: one bad rule spoils no other. It is left out with its reason and place, and nothing that
a rule says may hang, exhaust or run code in its reader. No rule raises on a row.

Read ``loading`` first (the public verbs, and the cache of what was read), then ``files`` (where
rules come from, and how a folder is followed). ``reading`` with ``places`` and ``translation``
turns YAML into values of our own; ``rule`` with ``fields`` binds these to columns. ``command`` has
``eddyline sigma run`` and ``check``.

A new modifier or kind of value is a case in ``translation``, and a class in ``rule`` if it is a
test of its own. A new log source is a line of ``CATEGORIES`` or ``SERVICES`` in ``fields``. A new
limit on what strangers may write goes to ``places``. Imports what stands above ``sigma/``; nothing
but the command line imports it.
"""

from eddyline.sigma.loading import load, read
from eddyline.sigma.rule import SigmaRule, SigmaRules

__all__ = ["SigmaRule", "SigmaRules", "load", "read"]
