"""Cases for tests/test_every_task.py: multimodal. None of the models needs torchvision."""

from __future__ import annotations

import tiny_multimodal
import tiny_vision
from task_case import Artifact, Case

ASKED = {"text": "What is the total?"}
PHOTO, CLIP, TONE = {"image": "@photo"}, {"video": "@clip"}, {"audio": "@tone"}
PAGE = {"image": "@page"}
PAGES = {"image": ["@photo", "@page"]}
SHORT = {"metadata": {"options": {"max_new_tokens": 12}}}


def has_text(artifact: Artifact) -> None:
    """Something was written."""
    assert artifact["output"]["generated_text"].strip()


def has_answer(artifact: Artifact) -> None:
    """At least one answer, the likeliest first."""
    assert isinstance(artifact["output"][0]["answer"], str)
    scores = [row["score"] or 0.0 for row in artifact["output"]]
    assert scores == sorted(scores, reverse=True)


def is_from_the_page(artifact: Artifact) -> None:
    """Words of the page answer."""
    answer = artifact["output"][0]["answer"]
    assert answer
    assert answer in "Invoice total 42"


def has_score_of_each_page(artifact: Artifact) -> None:
    """A number for each page; different pages, different numbers."""
    output = artifact["output"]
    assert len(output) == 2
    assert output[0] != output[1]


CASES: list[Case] = [
    Case("image-text-to-text", ASKED | PHOTO, has_text, tiny_vision.llava_chat, SHORT),
    Case("image-text-to-text", ASKED | PHOTO, has_text, tiny_multimodal.qwen2_vl, SHORT),
    Case("image-text-to-text", ASKED | PHOTO, has_text, tiny_multimodal.smolvlm, SHORT),
    Case("image-text-to-text", ASKED | PHOTO, has_text, tiny_vision.blip_caption, SHORT),
    Case("visual-question-answering", ASKED | PHOTO, has_answer, tiny_vision.vilt),
    Case("visual-question-answering", ASKED | PHOTO, has_answer, tiny_vision.blip_vqa),
    Case("visual-question-answering", ASKED | PHOTO, has_answer, tiny_multimodal.qwen2_vl, SHORT),
    Case("document-question-answering", ASKED | PAGE, is_from_the_page, tiny_vision.layoutlm),
    Case("document-question-answering", ASKED | PAGE, is_from_the_page, tiny_multimodal.layoutlmv3),
    Case("document-question-answering", ASKED | PAGE, has_answer, tiny_vision.donut),
    Case("document-question-answering", ASKED | PHOTO, has_answer, tiny_multimodal.smolvlm, SHORT),
    Case("video-text-to-text", ASKED | CLIP, has_text, tiny_vision.llava_chat, SHORT),
    Case("video-text-to-text", ASKED | CLIP, has_text, tiny_multimodal.qwen2_vl, SHORT),
    Case("video-text-to-text", ASKED | CLIP, has_text, tiny_multimodal.smolvlm, SHORT),
    Case("audio-text-to-text", ASKED | TONE, has_text, tiny_multimodal.qwen2_audio, SHORT),
    Case("any-to-any", ASKED, has_text, tiny_multimodal.qwen2_vl, SHORT),
    Case("any-to-any", ASKED | PHOTO | CLIP, has_text, tiny_multimodal.qwen2_vl, SHORT),
    Case("any-to-any", ASKED | TONE, has_text, tiny_multimodal.qwen2_audio, SHORT),
    Case("visual-document-retrieval", ASKED | PAGES, has_score_of_each_page, tiny_multimodal.colpali),
    Case("visual-document-retrieval", ASKED | PAGES, has_score_of_each_page, tiny_multimodal.clip),
]
