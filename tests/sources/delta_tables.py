"""Delta tables of tests: features that ``deltalake`` reads and does not write."""

from __future__ import annotations

import json
import struct
from pathlib import Path

Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


def deletion_vector(rows):
    """Return the descriptor of a deletion vector within the log, of rows below 65,536."""
    low = b"".join(struct.pack("<H", row) for row in rows)
    bitmap = struct.pack("<IIHHI", 12346, 1, 0, len(rows) - 1, 16) + low
    body = struct.pack("<IQI", 1681511377, 1, 0) + bitmap
    padded = body + b"\0" * (-len(body) % 4)
    text = ""
    for start in range(0, len(padded), 4):
        number, word = int.from_bytes(padded[start : start + 4]), ""
        for _ in range(5):
            number, digit = divmod(number, 85)
            word = Z85[digit] + word
        text += word
    return {
        "storageType": "i",
        "pathOrInlineDv": text,
        "sizeInBytes": len(body),
        "cardinality": len(rows),
    }


def commit_file(path, version):
    return Path(path) / "_delta_log" / f"{version:020d}.json"


def actions(path, version):
    return [json.loads(line) for line in commit_file(path, version).read_text().splitlines()]


def write_actions(path, version, rows):
    commit_file(path, version).write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def change_actions(path, version, change):
    """Write a commit again, with each action as a function returns it."""
    write_actions(path, version, [change(action) for action in actions(path, version)])


def with_features(action, *features):
    """Return a protocol action that asks for features of readers; others as they are."""
    if "protocol" in action:
        names = list(features)
        action["protocol"] = {
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": names,
            "writerFeatures": names,
        }
    return action
