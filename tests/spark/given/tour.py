"""Files beside the script of the tour: events and rules for the command line, a predicate."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

Path("my_rules.py").write_text(
    """
import pyarrow.compute as pc
import eddyline as el

@el.predicate("payload", "dst_port")
def suspicious(payload, dst_port):
    return pc.and_(pc.match_substring_regex(payload, "admin|passwd"), pc.less(dst_port, 1024))
""",
    "utf-8",
)
Path("rules").mkdir()
Path("rules/calc.yml").write_text(
    """
title: Calculator
id: 0a0a0a0a-254b-425c-a8c5-d9af6bea35a6
level: low
logsource: {product: windows, category: process_creation}
detection:
  selection: {Image|endswith: calc.exe}
  condition: selection
""",
    "utf-8",
)
pq.write_table(pa.table({"Image": ["C:\\calc.exe", "C:\\cmd.exe"]}), "events.parquet")
