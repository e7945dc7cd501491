"""What rules say of the rows of a frame: to Spark, and to a set of rules."""

from __future__ import annotations

from pyspark.sql import functions as F

import eddyline as el
from eddyline.query.conditions import NativeTest
from eddyline.spark.rules.binding import RuleBinder


def said_by_spark(frame, texts):
    columns = [F.when(F.expr(text), F.lit(text)) for text in texts]
    found = frame.select("id", F.array_compact(F.array(*columns)).alias("m")).collect()
    return {row["id"]: list(row["m"]) for row in found}


def said_by_rules(frame, texts, **options):
    rules = el.RuleSet({text: text for text in texts}, **options)
    found = frame.transform(rules.matches("m", keep_unmatched=True)).select("id", "m").collect()
    return {row["id"]: list(row["m"]) for row in found}


def natives(frame, text):
    """Return the parts of a rule that are left to Spark, each a column of its own."""
    _, sources = el.RuleSet({"r": text}).store.now()
    (rule,) = RuleBinder().bind(frame, sources.values(), skips=False).rules
    waiting, found = [rule.tree], []
    while waiting:
        node = waiting.pop()
        waiting += getattr(node, "parts", ())
        waiting += [getattr(node, name) for name in ("part", "test") if hasattr(node, name)]
        found += [node.sql] if isinstance(node, NativeTest) else []
    return found
