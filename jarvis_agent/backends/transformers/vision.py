"""Tasks on images with transformers: functions of a loaded model and a call that give the raw output."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from jarvis_agent.backends.base import Call
from jarvis_agent.backends.transformers.chat import Content, ask, decoded
from jarvis_agent.backends.transformers.generation import generate
from jarvis_agent.backends.transformers.loading import Loaded
from jarvis_agent.backends.transformers.text import BEST, text_of
from jarvis_agent.core.errors import MissingExtraError, UnsupportedError
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.types import Candidate

if TYPE_CHECKING:
    from PIL.Image import Image

CAPTION_TOKENS = 60
READ_TOKENS = 512
ANSWER_TOKENS = 60
LEAST_SCORE = 0.5
"""Score below which an object does not count as found."""

DISTANCE_KINDS = frozenset({"glpn", "zoedepth", "depth_pro"})
"""Model types whose depth is a distance."""


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
    """{predicted_depth, depth, metric}."""
    return {**loaded.pipe(picture(call)), "metric": tells_distance(loaded.model.config)}


def tells_distance(config: Any) -> bool:
    """Whether a model's depth is a distance (metres), or, as MiDaS has it, the reciprocal of one."""
    if config.model_type in DISTANCE_KINDS:
        return True
    if config.model_type == "dpt":  # those on DINOv2 were trained on metres (NYU, KITTI)
        return bool(getattr(config.backbone_config, "model_type", "") == "dinov2")
    return bool(getattr(config, "depth_estimation_type", "relative") == "metric")


def embed(loaded: Loaded, call: Call) -> Any:
    """A vector, float (n,): CLIP's image vector, the class token's (ViT, DINOv2), or the mean over places."""
    import torch

    model = loaded.model
    batch = loaded.inputs(loaded.parts["image_processor"](picture(call), return_tensors="pt"))
    with torch.inference_mode():
        if hasattr(model, "get_image_features"):
            vector = model.get_image_features(**batch).pooler_output
        else:
            vector = _pooled(model, model(**batch).last_hidden_state)
    return vector[0].float().cpu()


def _pooled(model: Any, states: Any) -> Any:
    """(batch, n) of a model's last states: (batch, tokens, n), or (batch, n, height, width)."""
    if states.ndim == 4:
        return states.mean((2, 3))
    marks = ("cls_token", "class_embedding")
    has_class = any(name.endswith(marks) for name, _ in model.named_parameters())
    return states[:, 0] if has_class else states.mean(1)


def enlarge(loaded: Loaded, call: Call) -> Image:
    """The image with more pixels (Swin2SR): as many times larger as the model's config says.

    Raises:
        UnsupportedError: a text or a mask says what to change, which such a model can not follow.
    """
    import torch
    from PIL import Image

    if any(call.inputs.get(name) for name in ("text", "mask")):
        raise UnsupportedError(f"{loaded.id} only makes images larger: it follows neither a text nor a mask")
    image, times = picture(call), loaded.model.config.upscale
    batch = loaded.parts["image_processor"](image, return_tensors="pt")
    with torch.inference_mode():
        made = loaded.model(**loaded.inputs(batch)).reconstruction[0]
    pixels = made[:, : image.height * times, : image.width * times].float().clamp(0, 1).mul(255).round()
    return Image.fromarray(pixels.byte().permute(1, 2, 0).cpu().numpy())


def caption(loaded: Loaded, call: Call) -> str:
    """What an image shows, or the text in it if `hints["ocr"]`; chat models are asked for it."""
    image, reads = picture(call), bool(call.hints.get("ocr"))
    most = READ_TOKENS if reads else CAPTION_TOKENS
    if getattr(loaded.processor, "chat_template", None):
        wanted = "Write out all the text in this image." if reads else "Describe this image in one sentence."
        return _ask(loaded, image, wanted, most)
    return decoded(
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
        return [{"answer": decoded(loaded, generate(loaded, batch, max_new_tokens=ANSWER_TOKENS))}]
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
    return loaded.pipe(picture(call), text_of(call), word_boxes=page_words(loaded, call))


def page_words(loaded: Loaded, call: Call) -> list[tuple[str, list[int]]]:
    """The words of the page that is asked about, as `words_of`.

    Raises:
        UnsupportedError: there are none.
    """
    words = words_of(loaded.extras["reader"](call)["lines"], picture(call).size)
    if not words:
        raise UnsupportedError(
            f"{loaded.id} answers from the words of a page, and there are none on this one"
        )
    return words


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
    from jarvis_agent.backends.starter.backend import READERS
    from jarvis_agent.backends.starter.models import STARTERS, fetch_weights

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
    content: list[Content] = [{"type": "image", "image": image}, {"type": "text", "text": question}]
    return ask(loaded, content, max_new_tokens)
