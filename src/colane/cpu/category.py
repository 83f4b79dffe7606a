"""What a script works on, told by what it imports (paper D asks the owner; most do not say)."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from types import MappingProxyType

from colane.model.job_spec import Category

TELLTALES: Mapping[str, Category] = MappingProxyType(
    {
        **dict.fromkeys(("torchvision", "timm", "cv2", "kornia", "albumentations", "ultralytics"), Category.CV),
        **dict.fromkeys(("mmcv", "mmdet", "mmseg", "mmpretrain", "detectron2", "keras_cv"), Category.CV),
        **dict.fromkeys(("keras.applications", "tensorflow.keras.applications"), Category.CV),
        **dict.fromkeys(("transformers", "tokenizers", "sentencepiece", "tiktoken", "torchtext"), Category.NLP),
        **dict.fromkeys(("spacy", "nltk", "gensim", "fairseq", "sacrebleu", "keras_nlp"), Category.NLP),
        **dict.fromkeys(("torchaudio", "librosa", "speechbrain", "kaldiio", "espnet", "espnet2"), Category.SPEECH),
        **dict.fromkeys(("nemo.collections.asr", "nemo.collections.tts"), Category.SPEECH),
    }
)
"""Packages that are used for one kind of work; general ones (torch, numpy, PIL, datasets) tell nothing."""


def category_of(source: str) -> Category:
    """The category whose packages a script imports, unknown when it imports none or those of several.

    Args:
        source: Text of a Python script; one that cannot be parsed tells nothing.
    """
    try:
        imported = list(_imported(ast.parse(source)))
    except (SyntaxError, ValueError):
        return Category.UNKNOWN
    found = {TELLTALES[name] for name in imported if name in TELLTALES}
    return found.pop() if len(found) == 1 else Category.UNKNOWN


def _imported(tree: ast.Module) -> Iterator[str]:
    """Every package that is imported, and what lies above it: `a.b` gives `a.b` and `a`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _above(alias.name)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from _above(node.module)
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _above(name: str) -> Iterator[str]:
    while name:
        yield name
        name = name.rpartition(".")[0]
