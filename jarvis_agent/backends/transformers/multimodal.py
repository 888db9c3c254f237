"""Sounds, and models that read images, videos and recordings together with text: replies, captions, pages.

A video is shown as some of its frames with their times, which every model for several images understands. A
recording longer than the model hears at once is split into consecutive parts.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

from jarvis_agent.backends.base import Call, reads_text, text_of
from jarvis_agent.backends.devices import seeded
from jarvis_agent.backends.jobs import add_note
from jarvis_agent.backends.transformers.loading import LoadedModel
from jarvis_agent.backends.transformers.text import (
    MAX_LABELS,
    decode,
    generate,
    split_by_tokens,
    stopping,
    top_labels,
)
from jarvis_agent.core.errors import BadInputError, MissingExtraError, UnsupportedError
from jarvis_agent.core.images import to_opaque
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.types import Candidate

REPLY_TOKENS = 512
CAPTION_TOKENS = 60
READ_TOKENS = 512
ANSWER_TOKENS = 60

FRAMES = 8
"""Frames of a video that a model is shown."""

FRAME_SIDE = 512
"""Longest side of a frame in pixels: a frame costs as many tokens as an image."""

_NO_TILES = {"do_image_splitting": False, "crop_to_patches": False}
"""Settings with which image processors do not cut an image into tiles."""


def is_chat_model(loaded: LoadedModel) -> bool:
    """Return whether the processor has a chat template."""
    return bool(getattr(loaded.processor, "chat_template", None))


def reply(
    loaded: LoadedModel, call: Call, text: str | None = None, max_new_tokens: int = REPLY_TOKENS
) -> str:
    """Return a chat model's reply to a text (default: the call's) with the media of the call."""
    text = text_of(call) if text is None else text
    if not is_chat_model(loaded):
        raise UnsupportedError(f"{loaded.id} is not a chat model, so it cannot be asked about anything")
    for token in getattr(loaded.processor.tokenizer, "added_tokens_decoder", {}).values():
        if token.special:  # quoted text must not open a turn or stand for an image
            text = text.replace(token.content, " ")
    eye = getattr(loaded.processor, "image_processor", None) if call.inputs.get("video") else None
    template = str(loaded.processor.chat_template)
    batch = loaded.processor.apply_chat_template(
        [{"role": "user", "content": [*_shown_media(loaded, call), {"type": "text", "text": text}]}],
        add_generation_prompt=True,
        tokenize=True,
        return_dict=True,
        return_tensors="pt",
        processor_kwargs={name: off for name, off in _NO_TILES.items() if hasattr(eye, name)},
        **({"enable_thinking": False} if "enable_thinking" in template else {}),
    )
    options = {}
    if loaded.model.config.model_type in ("qwen2_5_omni", "qwen3_omni_moe"):  # they speak otherwise
        limit = loaded.options.get("max_new_tokens", max_new_tokens)
        options = {"generation_mode": "text", "thinker_max_new_tokens": limit}
    return decode(loaded, generate(loaded, batch, max_new_tokens=max_new_tokens, **options))


def reply_or_continue(loaded: LoadedModel, call: Call) -> str:
    """Return a chat model's reply, or another model's continuation of the text (BLIP, Florence)."""
    if is_chat_model(loaded):
        return reply(loaded, call)
    batch = loaded.processor(images=call.image(), text=text_of(call), return_tensors="pt")
    return decode(loaded, generate(loaded, batch, max_new_tokens=REPLY_TOKENS))


def _shown_media(loaded: LoadedModel, call: Call) -> Iterator[Mapping[str, Any]]:
    """The image, video and recording of a call as parts of a chat message, {type: "image", image: PIL}."""
    eye, ear = (getattr(loaded.processor, part, None) for part in ("image_processor", "feature_extractor"))
    image, video, audio = (call.inputs.get(name) for name in ("image", "video", "audio"))
    if (image or video) and eye is None:
        raise UnsupportedError(f"{loaded.id} cannot see images")
    if image:
        yield {"type": "image", "image": call.image()}
    if video:
        frames = call.frames(FRAMES)
        yield {"type": "text", "text": f"{len(frames)} frames of a video, in their order:\n"}
        for seconds, frame in frames:
            yield {"type": "text", "text": f"{seconds:.1f} s: "}
            frame.thumbnail((FRAME_SIDE, FRAME_SIDE))
            yield {"type": "image", "image": frame}
        yield {"type": "text", "text": "\n"}
    if audio:
        if ear is None:
            raise UnsupportedError(f"{loaded.id} cannot hear recordings")
        samples = call.sound(ear.sampling_rate)
        length = int(getattr(ear, "chunk_length", None) or 0) * ear.sampling_rate or len(samples)
        for start in range(0, len(samples), length):
            yield {"type": "audio", "audio": samples[start : start + length]}


def caption(loaded: LoadedModel, call: Call) -> str:
    """Return a description of an image, or its text if that is asked for."""
    reads = reads_text(call.inputs)
    limit = READ_TOKENS if reads else CAPTION_TOKENS
    if is_chat_model(loaded):
        question = str(call.inputs.get("text") or "Describe this image in one sentence.")
        return reply(loaded, call, "Write out all the text in this image." if reads else question, limit)
    batch = loaded.processor(images=call.image(), return_tensors="pt")
    return decode(loaded, generate(loaded, batch, max_new_tokens=limit))


def caption_with_decoder(loaded: LoadedModel, call: Call) -> str:
    """Return a caption from an image encoder with a text decoder (ViT-GPT2), or a line of text (TrOCR)."""
    batch = loaded.parts["image_processor"](images=call.image(), return_tensors="pt")
    pixels = {"pixel_values": batch["pixel_values"]}
    return decode(loaded, generate(loaded, pixels, max_new_tokens=CAPTION_TOKENS))


def answer_question(loaded: LoadedModel, call: Call) -> list[dict[str, Any]]:
    """Return [{answer, score}] from a classifier (ViLT), or [{answer}] from a generative model (BLIP)."""
    loaded.note_cut(call, [text_of(call)])
    batch = loaded.processor(images=call.image(), text=text_of(call), truncation=True, return_tensors="pt")
    if loaded.model.can_generate():
        return [{"answer": decode(loaded, generate(loaded, batch, max_new_tokens=ANSWER_TOKENS))}]
    scores = loaded.forward(batch).logits[0].float().sigmoid().cpu()
    return top_labels(scores, loaded.model.config, "answer")


def answer_from_page(loaded: LoadedModel, call: Call) -> Any:
    """Return [{answer, score, start, end}] from the words of a page and their positions (LayoutLM)."""
    image, question = call.image(), text_of(call)
    loaded.check_length("questions", [question], loaded.tokenizer.model_max_length // 2)
    page = loaded.extras["reader"](replace(call, spec=TASKS["image-to-text"]))
    words = words_of(page["lines"], image.size)
    if not words:
        raise UnsupportedError(
            f"{loaded.id} answers from the words of a page, and there are none on this one"
        )
    return loaded.pipe(image, question, word_boxes=words)


def answer_from_pixels(loaded: LoadedModel, call: Call) -> str:
    """Return the answer of a model that reads the page itself (Donut)."""
    prompt = f"<s_docvqa><s_question>{text_of(call)}</s_question><s_answer>"
    pixels = loaded.parts["image_processor"](images=call.image(), return_tensors="pt")["pixel_values"]
    start = loaded.tokenizer(prompt, add_special_tokens=False, return_tensors="pt").input_ids
    batch = {"pixel_values": pixels, "decoder_input_ids": start}
    ids = generate(loaded, batch, max_new_tokens=ANSWER_TOKENS)
    text = loaded.tokenizer.decode(ids, skip_special_tokens=False).split("</s_answer>")[0]
    return re.sub(r"<[^>]*>", "", text).strip()


def load_ocr(candidate: Candidate, settings: Settings) -> Mapping[str, Any]:
    """Return {"reader": …}: the starter models' OCR, for models that answer from the words of a page."""
    from jarvis_agent.backends.starter.backend import STARTERS, load_expert

    reader = STARTERS["PP-OCRv6-small"]
    if any(find_spec(module) is None for module in reader.needs):
        raise MissingExtraError(f"{candidate.id}, which answers from the words of a page,", "starter")
    return {"reader": load_expert(reader, settings)}


def words_of(lines: Iterable[Mapping[str, Any]], size: tuple[int, int]) -> list[tuple[str, list[int]]]:
    """Return the words of lines with their boxes, in thousandths of the page: xmin, ymin, xmax, ymax.

    A word's position is its letters' share of the line.
    """
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

    def embed(**inputs: Any) -> Any:
        return loaded.forward(loaded.processor(**inputs, return_tensors="pt")).embeddings[0].float().cpu()

    query = embed(text=[text_of(call)])
    pages = [embed(images=[to_opaque(page.to_pil())]) for page in call.inputs["image"]]
    if not pages:
        raise BadInputError(f"{call.spec.name} needs a list of images of pages, and this one is empty")
    scores: list[float] = loaded.processor.score_retrieval([query], pages)[0].tolist()
    return scores


CHUNK_SECONDS = 30.0
"""Longer recordings are transcribed in chunks of this length."""

CLASSIFIED_SECONDS = 60.0
"""Length that is classified: the memory of some models grows with its square."""

TRANSCRIPT_TOKENS = 440
SPEECH_TOKENS = 150
"""Tokens of text per synthesis; longer texts are split."""

MUSIC_TOKENS = 512
"""Length of generated music; MusicGen makes 50 tokens a second."""


def transcribe(loaded: LoadedModel, call: Call) -> Any:
    """Return {text} of a recording; Whisper adds chunks with times in seconds."""
    sound, seconds = _sound(loaded, call)
    options: dict[str, Any] = {}
    if loaded.model.can_generate():
        longest = min(TRANSCRIPT_TOKENS, getattr(loaded.model.config, "max_target_positions", 448) - 8)
        options["generate_kwargs"] = {"max_new_tokens": longest, "stopping_criteria": stopping()}
    if hasattr(getattr(loaded.model, "generation_config", None), "no_timestamps_token_id"):
        options["return_timestamps"] = True
    elif seconds > CHUNK_SECONDS:
        options["chunk_length_s"] = CHUNK_SECONDS
    return loaded.pipe(sound, **options)


def classify_sound(loaded: LoadedModel, call: Call) -> Any:
    """Return [{label, score}] of the first CLASSIFIED_SECONDS."""
    sound, seconds = _sound(loaded, call)
    if seconds > CLASSIFIED_SECONDS:
        sound["raw"] = sound["raw"][: int(CLASSIFIED_SECONDS * sound["sampling_rate"])]
        add_note(f"only the first {CLASSIFIED_SECONDS:.0f} seconds were classified")
    return loaded.pipe(sound, top_k=MAX_LABELS)


def _sound(loaded: LoadedModel, call: Call) -> tuple[dict[str, Any], float]:
    """Return the recording at the model's sampling rate, and its length in seconds."""
    import numpy as np

    rate = loaded.parts["feature_extractor"].sampling_rate
    samples = call.sound(rate)
    missing = max(0, rate // 10 - len(samples))  # models refuse less than one of their windows
    return {"raw": np.pad(samples, (0, missing)), "sampling_rate": rate}, len(samples) / rate


def synthesize(loaded: LoadedModel, call: Call) -> dict[str, Any]:
    """Return {audio, sampling_rate}; a long text is spoken piece by piece until the call is cancelled."""
    import numpy as np

    options: dict[str, Any] = {}
    if loaded.model.config.model_type == "bark":  # each of its stages generates
        stages = ("semantic", "coarse")
        options["generate_kwargs"] = {f"{stage}_stopping_criteria": stopping() for stage in stages}
    with seeded(call.settings.seed):
        pieces = split_by_tokens(text_of(call), loaded, SPEECH_TOKENS)
        outputs = [loaded.pipe(piece, **options) for piece in pieces]
    sounds = [np.asarray(output["audio"], dtype=np.float32).reshape(-1) for output in outputs]
    return {"audio": np.concatenate(sounds), "sampling_rate": int(outputs[0]["sampling_rate"])}


def generate_music(loaded: LoadedModel, call: Call) -> Any:
    """Return {audio, sampling_rate}: music from a description (MusicGen), of MUSIC_TOKENS by default."""
    wanted = {"max_new_tokens": MUSIC_TOKENS, **loaded.options, "stopping_criteria": stopping()}
    with seeded(call.settings.seed):
        return loaded.pipe(text_of(call), generate_kwargs=wanted)
