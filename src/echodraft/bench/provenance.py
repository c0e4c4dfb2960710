"""Provenance: what a figure was made with; never the name of the machine, nor a path on it."""

from __future__ import annotations

import datetime
import importlib.metadata
import platform
import subprocess
from pathlib import Path
from typing import Any

import psutil
import torch

import echodraft

__all__ = ["facts"]

PACKAGES = ("torch", "transformers", "numpy")


def facts() -> dict[str, Any]:
    """Date, versions, commit and machine as plain JSON types."""
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "versions": {
            "python": platform.python_version(),
            "echodraft": echodraft.__version__,
            **{name: importlib.metadata.version(name) for name in PACKAGES},
        },
        **_code(),
        "machine": {
            "processor": _processor(),
            "capability": torch.backends.cpu.get_cpu_capability(),
            "cores": psutil.cpu_count(logical=True),
            "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
            "gpu": torch.cuda.get_device_name(0) if torch.cuda.is_available() else None,
            "threads": torch.get_num_threads(),
        },
    }


def _code() -> dict[str, Any]:
    """Commit of the source tree, and whether tracked files differ from it; None for an installed wheel."""
    here = Path(__file__).resolve().parent

    def git(*arguments: str) -> str | None:
        try:
            done = subprocess.run(
                ["git", "-C", str(here), *arguments], capture_output=True, text=True, check=True, timeout=20
            )
        except (OSError, subprocess.SubprocessError):
            return None
        return done.stdout.strip()

    commit = git("rev-parse", "HEAD")
    changes = git("status", "--porcelain", "--untracked-files=no", "--", ":/src")
    return {"commit": commit, "dirty": None if changes is None else bool(changes)}


def _processor() -> str:
    """The processor's model name where the system tells it, else the architecture."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
