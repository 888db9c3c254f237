"""Tasks on images with transformers: functions of a loaded model and a call that give the raw output."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from jarvis_agent.backends.base import Call
from jarvis_agent.backends.generation import generate
from jarvis_agent.backends.transformers_loading import Loaded
from jarvis_agent.backends.transformers_text import BEST, text_of
from jarvis_agent.errors import MissingExtraError, UnsupportedError
from jarvis_agent.settings import Settings
from jarvis_agent.types import Candidate

if TYPE_CHECKING:
    from PIL.Image import Image

CAPTION_TOKENS = 60
READ_TOKENS = 512
ANSWER_TOKENS = 60
LEAST_SCORE = 0.5
"""Score below which an object does not count as found."""


def picture(call: Call) -> Image:
    """The image argument in RGB."""
    return call.inputs["image"].to_pil().convert("RGB")  # type: ignore[no-any-return]


def classify(loaded: Loaded, call: Call) -> Any:
    """[{label, score}]."""
    return loaded.pipe(picture(call), top_k=min(BEST, loaded.model.config.num_labels))


def detect(loaded: Loaded, call: Call) -> Any:
    """[{label, score, box}]."""
    return loaded.pipe(picture(call), threshold=LEAST_SCORE)


def segment(loaded: Loaded, call: Call) -> Any:
    """[{label, score or None, mask}]."""
    return loaded.pipe(picture(call))


def estimate_depth(loaded: Loaded, call: Call) -> Any:
    """{predicted_depth, depth}."""
    return loaded.pipe(picture(call))


def caption(loaded: Loaded, call: Call) -> str:
    """What an image shows, or the text in it if `hints["ocr"]`; chat models are asked for it."""
    image, reads = picture(call), bool(call.hints.get("ocr"))
    most = READ_TOKENS if reads else CAPTION_TOKENS
    if getattr(loaded.processor, "chat_template", None):
        wanted = "Write out all the text in this image." if reads else "Describe this image in one sentence."
        return _ask(loaded, image, wanted, most)
    return _decoded(
        loaded, generate(loaded, loaded.processor(images=image, return_tensors="pt"), max_new_tokens=most)
    )


def caption_by_decoder(loaded: Loaded, call: Call) -> str:
    """As `caption`, with a vision encoder and a text decoder: ViT-GPT2 captions, TrOCR reads a line."""
    batch = loaded.parts["image_processor"](images=picture(call), return_tensors="pt")
    written = generate(loaded, {"pixel_values": batch["pixel_values"]}, max_new_tokens=CAPTION_TOKENS)
    return str(loaded.tokenizer.decode(written, skip_special_tokens=True)).strip()


def answer(loaded: Loaded, call: Call) -> list[dict[str, Any]]:
    """[{answer, score}] from a classifier (ViLT), or [{answer}] from a model that writes (BLIP)."""
    import torch

    image, question = picture(call), text_of(call)
    batch = loaded.processor(images=image, text=question, truncation=True, return_tensors="pt")
    if loaded.model.can_generate():
        return [{"answer": _decoded(loaded, generate(loaded, batch, max_new_tokens=ANSWER_TOKENS))}]
    with torch.inference_mode():
        scores = loaded.model(**loaded.inputs(batch)).logits[0].float().sigmoid().cpu()
    best = scores.topk(min(BEST, len(scores)))
    names = loaded.model.config.id2label
    found = zip(best.indices.tolist(), best.values.tolist(), strict=True)
    return [{"answer": names[place], "score": score} for place, score in found]


def answer_by_chat(loaded: Loaded, call: Call) -> list[dict[str, Any]]:
    """[{answer}] from a chat model that sees images."""
    if not getattr(loaded.processor, "chat_template", None):
        raise UnsupportedError(f"{loaded.id} is no chat model, so that it can not be asked about an image")
    return [{"answer": _ask(loaded, picture(call), text_of(call), ANSWER_TOKENS)}]


def answer_from_page(loaded: Loaded, call: Call) -> Any:
    """[{answer, score, start, end}] from the words of a document and where they stand (LayoutLM)."""
    image, question = picture(call), text_of(call)
    words = words_of(loaded.extras["reader"](call)["lines"], image.size)
    if not words:
        raise UnsupportedError(
            f"{loaded.id} answers from the words of a page, and there are none on this one"
        )
    return loaded.pipe(image, question, word_boxes=words)


def answer_by_reading(loaded: Loaded, call: Call) -> list[dict[str, Any]]:
    """[{answer}] from a model that reads the document itself (Donut)."""
    prompt = f"<s_docvqa><s_question>{text_of(call)}</s_question><s_answer>"
    batch = loaded.parts["image_processor"](images=picture(call), return_tensors="pt")
    start = loaded.tokenizer(prompt, add_special_tokens=False, return_tensors="pt").input_ids
    written = generate(
        loaded,
        {"pixel_values": batch["pixel_values"], "decoder_input_ids": start},
        max_new_tokens=ANSWER_TOKENS,
    )
    text = loaded.tokenizer.decode(written, skip_special_tokens=False).split("</s_answer>")[0]
    return [{"answer": re.sub(r"<[^>]*>", "", text).strip()}]


def page_reader(candidate: Candidate, settings: Settings) -> Mapping[str, Any]:
    """The starter models' reader of printed text, for those who answer from the words of a page.

    Raises:
        MissingExtraError: it is not installed.
    """
    from jarvis_agent.backends.starter import READERS
    from jarvis_agent.sources.starter import STARTERS, fetch_weights

    reader = next(model for model in STARTERS.values() if model.reader == "ocr")
    if any(find_spec(module) is None for module in reader.needs):
        raise MissingExtraError(f"{candidate.id}, which answers from the words of a page,", "starter")
    return {"reader": READERS["ocr"](fetch_weights(reader, settings), settings)}


def words_of(lines: Iterable[Mapping[str, Any]], size: tuple[int, int]) -> list[tuple[str, list[int]]]:
    """The words of lines of text, each with its box in thousandths of the page's size.

    Where a word stands in its line is taken from its letters' share of the line.
    """
    words = []
    for line in lines:
        box, text = line["box"], line["text"]
        wide = (box["xmax"] - box["xmin"]) / max(len(text), 1)
        for word in re.finditer(r"\S+", text):
            left, right = box["xmin"] + word.start() * wide, box["xmin"] + word.end() * wide
            places = (left / size[0], box["ymin"] / size[1], right / size[0], box["ymax"] / size[1])
            words.append((word.group(), [min(max(round(1000 * place), 0), 1000) for place in places]))
    return words


def _ask(loaded: Loaded, image: Image, question: str, max_new_tokens: int) -> str:
    content = [{"type": "image", "image": image}, {"type": "text", "text": question}]
    batch = loaded.processor.apply_chat_template(
        [{"role": "user", "content": content}],
        add_generation_prompt=True,
        tokenize=True,
        return_dict=True,
        return_tensors="pt",
    )
    return _decoded(loaded, generate(loaded, batch, max_new_tokens=max_new_tokens))


def _decoded(loaded: Loaded, ids: Any) -> str:
    return str(loaded.processor.decode(ids, skip_special_tokens=True)).strip()
