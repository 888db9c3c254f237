"""Pages of documents with transformers: answers from a page, and which pages match a query.

answer_from_pixels(loaded, call)     # [{"answer": "42"}]
score_pages(loaded, call)            # [14.2, 9.7]: the score of each page
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from typing import Any

from jarvis_agent.backends.base import Call
from jarvis_agent.backends.transformers.generation import generate
from jarvis_agent.backends.transformers.loading import LoadedModel
from jarvis_agent.backends.transformers.multimodal import ANSWER_TOKENS
from jarvis_agent.backends.transformers.text import text_of
from jarvis_agent.backends.transformers.vision import image_of
from jarvis_agent.core.errors import BadInputError, MissingExtraError, UnsupportedError
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.types import Candidate

Words = list[tuple[str, list[int]]]
"""Words with their boxes in thousandths of the page: xmin, ymin, xmax, ymax."""


def answer_from_page(loaded: LoadedModel, call: Call) -> Any:
    """Return [{answer, score, start, end}] from the words of a page and their positions (LayoutLM)."""
    return loaded.pipe(image_of(call), text_of(call), word_boxes=_read_words(loaded, call))


def answer_from_pixels(loaded: LoadedModel, call: Call) -> list[dict[str, Any]]:
    """Return [{answer}] from a model that reads the page itself (Donut)."""
    prompt = f"<s_docvqa><s_question>{text_of(call)}</s_question><s_answer>"
    pixels = loaded.parts["image_processor"](images=image_of(call), return_tensors="pt")["pixel_values"]
    start = loaded.tokenizer(prompt, add_special_tokens=False, return_tensors="pt").input_ids
    batch = {"pixel_values": pixels, "decoder_input_ids": start}
    ids = generate(loaded, batch, max_new_tokens=ANSWER_TOKENS)
    text = loaded.tokenizer.decode(ids, skip_special_tokens=False).split("</s_answer>")[0]
    return [{"answer": re.sub(r"<[^>]*>", "", text).strip()}]


def load_ocr(candidate: Candidate, settings: Settings) -> Mapping[str, Any]:
    """Return {"reader": …}: the starter models' OCR, for models that answer from the words of a page."""
    from jarvis_agent.backends.starter.backend import load_expert
    from jarvis_agent.backends.starter.models import STARTERS

    reader = next(model for model in STARTERS.values() if model.reader == "ocr")
    if any(find_spec(module) is None for module in reader.needs):
        raise MissingExtraError(f"{candidate.id}, which answers from the words of a page,", "starter")
    return {"reader": load_expert(reader, settings)}


def _read_words(loaded: LoadedModel, call: Call) -> Words:
    words = words_of(loaded.extras["reader"](call)["lines"], image_of(call).size)
    if not words:
        raise UnsupportedError(
            f"{loaded.id} answers from the words of a page, and there are none on this one"
        )
    return words


def words_of(lines: Iterable[Mapping[str, Any]], size: tuple[int, int]) -> Words:
    """Return the words of lines of text. A word's position is its letters' share of the line."""
    words = []
    for line in lines:
        box, text = line["box"], line["text"]
        letter = (box["xmax"] - box["xmin"]) / max(len(text), 1)
        for word in re.finditer(r"\S+", text):
            left, right = box["xmin"] + word.start() * letter, box["xmin"] + word.end() * letter
            places = (left / size[0], box["ymin"] / size[1], right / size[0], box["ymax"] / size[1])
            words.append((word.group(), [min(max(round(1000 * place), 0), 1000) for place in places]))
    return words


def score_pages(loaded: LoadedModel, call: Call) -> list[float]:
    """Return the score of each page: the sum over query tokens of their best match in the page.

    Late interaction as in ColPali (arXiv 2407.01449). Pages are embedded one by one to bound memory.
    """

    def embed(**given: Any) -> Any:
        return loaded.forward(loaded.processor(**given, return_tensors="pt")).embeddings[0].float().cpu()

    query = embed(text=[text_of(call)])
    pages = [embed(images=[page.to_pil().convert("RGB")]) for page in call.inputs["image"]]
    if not pages:
        raise BadInputError(f"{call.spec.name} needs a list of images of pages, and this one is empty")
    scores: list[float] = loaded.processor.score_retrieval([query], pages)[0].tolist()
    return scores
