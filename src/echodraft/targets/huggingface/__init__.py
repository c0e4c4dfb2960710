"""Targets that are transformers models: loading, caches, attention, state capture, text."""

from echodraft.targets.huggingface.architectures import wrap
from echodraft.targets.huggingface.loading import LoadOptions, load_model
from echodraft.targets.huggingface.target import HuggingFaceTarget

__all__ = ["HuggingFaceTarget", "LoadOptions", "load_model", "wrap"]
