"""Files of a run: rows appended one line at a time, documents replaced as a whole."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["Rows", "write_json"]


class Rows:
    """Rows of JSON, one a line. A row is written by one call, and is there or is not."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def append(self, row: Mapping[str, Any]) -> None:
        """Add a row behind all others."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        line = json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n"
        if self._broken_end():
            line = "\n" + line  # the half line of a killed writer stays alone, and is not read
        handle = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(handle, line.encode("utf-8"))
        finally:
            os.close(handle)

    def read(self) -> list[dict[str, Any]]:
        """All whole rows; half lines that a killed writer left are passed over."""
        if not self._path.is_file():
            return []
        rows = []
        for line in self._path.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                row = json.loads(line)
            except ValueError:
                continue
            if isinstance(row, dict):
                rows.append(row)
        return rows

    def _broken_end(self) -> bool:
        if not self._path.is_file() or not self._path.stat().st_size:
            return False
        with self._path.open("rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read(1) != b"\n"


def write_json(path: Path, document: Mapping[str, Any]) -> None:
    """Write `document`; beside and renamed, so that a reader never sees half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False, encoding="utf-8") as file:
        json.dump(document, file, indent=1, ensure_ascii=False, allow_nan=False)
        file.write("\n")
    os.chmod(file.name, 0o644)
    os.replace(file.name, path)
