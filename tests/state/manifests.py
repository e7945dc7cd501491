"""Manifests as a test changes them: another content, and the checksum of that."""

from __future__ import annotations

import json
import zlib


def content(path):
    """Return what a file of a manifest says."""
    return json.loads(path.read_text())["manifest"]


def change(path, **values):
    """Give fields of a manifest other values."""
    whole = json.loads(path.read_text())
    text = json.dumps({**whole["manifest"], **values})
    head = f'"format": {whole["format"]}, "checksum": {zlib.crc32(text.encode())}'
    path.write_text(f'{{{head}, "manifest": {text}}}')
