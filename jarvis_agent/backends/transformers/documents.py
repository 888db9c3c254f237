"""Pages of documents with transformers: an answer from the words and looks of one, and which fit a query.

answer_from_layout(loaded, call)     # [{"answer": "42", "score": 0.93, "start": 2, "end": 2}, …]
score_pages(loaded, call)            # [14.2, 9.7]: how well each page answers a query
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from jarvis_agent.backends.base import Call
from jarvis_agent.backends.transformers.loading import Loaded
from jarvis_agent.backends.transformers.text import ANSWERS, best_spans, text_of
from jarvis_agent.backends.transformers.vision import page_words, picture
from jarvis_agent.core.errors import BadInputError
from jarvis_agent.core.types import Resource

if TYPE_CHECKING:
    from PIL.Image import Image


def answer_from_layout(loaded: Loaded, call: Call) -> list[dict[str, Any]]:
    """[{answer, score, start, end}] from a page's words, where they stand, and its looks (LayoutLMv3).

    `start` and `end` are places in the list of words. A page with many words is read in windows that overlap
    by a quarter.
    """
    import torch

    texts, boxes = zip(*page_words(loaded, call), strict=True)
    tokenizer = loaded.tokenizer
    windows = tokenizer(
        [text_of(call)],
        [list(texts)],
        boxes=[list(boxes)],
        truncation="only_second",
        max_length=tokenizer.model_max_length,
        stride=tokenizer.model_max_length // 4,
        return_overflowing_tokens=True,
        padding=True,
        return_tensors="pt",
    )
    windows.pop("overflow_to_sample_mapping", None)
    looks = loaded.parts["image_processor"](picture(call), apply_ocr=False, return_tensors="pt")
    spans: dict[tuple[int, int], float] = {}
    for number in range(len(windows["input_ids"])):
        window = {name: rows[number : number + 1] for name, rows in windows.items()}
        with torch.inference_mode():
            output = loaded.model(**loaded.inputs({**window, "pixel_values": looks["pixel_values"]}))
        on_page = [kind == 1 for kind in windows.sequence_ids(number)]
        places = windows.word_ids(number)
        # Behind the tokens of the text stand those of the image, of which no answer consists.
        start, end = (
            scores[0, : len(places)].float().cpu() for scores in (output.start_logits, output.end_logits)
        )
        for first, last, score in best_spans(start, end, on_page):
            span = (places[first], places[last])
            spans[span] = max(score, spans.get(span, 0.0))
    best = sorted(spans.items(), key=lambda item: -item[1])[:ANSWERS]
    return [
        {"answer": " ".join(texts[a : b + 1]), "score": score, "start": a, "end": b} for (a, b), score in best
    ]


def score_pages(loaded: Loaded, call: Call) -> list[float]:
    """How well each page answers the query: the sum over the query's tokens of their best match in the page.

    Late interaction, as of ColPali (arXiv 2407.01449). Pages are looked at one by one, so that many fit.
    """
    import torch

    def embed(**given: Any) -> Any:
        batch = loaded.processor(**given, return_tensors="pt")
        with torch.inference_mode():
            return loaded.model(**loaded.inputs(batch)).embeddings[0].float().cpu()

    query = embed(text=[text_of(call)])
    pages = [embed(images=[page]) for page in _pages(call)]
    scores: list[float] = loaded.processor.score_retrieval([query], pages)[0].tolist()
    return scores


def compare_pages(loaded: Loaded, call: Call) -> list[float]:
    """As `score_pages`, with a model that makes one vector of an image or a text (CLIP, SigLIP): cosines."""
    import torch

    pages = list(_pages(call))
    batch = loaded.processor(
        text=[text_of(call)], images=pages, padding="max_length", truncation=True, return_tensors="pt"
    )
    with torch.inference_mode():
        found = loaded.model(**loaded.inputs(batch))
    cosines = torch.nn.functional.cosine_similarity(found.text_embeds, found.image_embeds, dim=-1)
    return [float(cosine) for cosine in cosines]


def _pages(call: Call) -> Iterator[Image]:
    given: list[Resource] = list(call.inputs["image"])
    if not given:
        raise BadInputError(f"{call.spec.name} needs a list of images of pages, and this one is empty")
    for page in given:
        yield page.to_pil().convert("RGB")
