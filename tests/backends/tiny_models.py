"""Tiny models with random weights, built from their configs and saved as the Hub's repositories are.

    folder = build("vit", tmp_path / "vit")     # a directory with config.json, model.safetensors, …

They know nothing: what they return has the right form and no meaning.
"""

from __future__ import annotations

from pathlib import Path

import tiny_audio
import tiny_text
import tiny_vision


def build(name: str, folder: Path) -> Path:
    """Build the model of that name (a function in one of the modules above) in the folder, and return it."""
    import torch

    torch.manual_seed(0)
    folder.mkdir(parents=True, exist_ok=True)
    module = next(module for module in (tiny_text, tiny_vision, tiny_audio) if hasattr(module, name))
    getattr(module, name)(folder)
    return folder
