"""Reports of jobs that nobody waits for."""

from __future__ import annotations

import threading
from types import SimpleNamespace

from eddyline.spark.operator import Laid, Operator, Pending
from eddyline.spark.run.observations import JobReports


def test_a_report_is_learned_once_whoever_asks():
    learned = []

    class Metrics:
        def get(self, timeout_s):
            return {}

    class Slow(Operator):
        def learn(self, observed, batch):
            threading.Event().wait(0.05)
            learned.extend(each.name for each in observed)
            return []

    reports, df = JobReports(), SimpleNamespace(isStreaming=False)
    reports.lay(df, Slow(), lambda observation: Laid(df, (Pending("report", Metrics()),)))
    threads = [threading.Thread(target=reports.learn, args=(0.0,)) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert learned == ["report"]
