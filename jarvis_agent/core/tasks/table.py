"""The table of task types. A new one is one more row.

`HUB_TASKS` is the Hub's official list, less what cannot be run (`NOT_CALLABLE`): `PIPELINE_DATA` of the npm
package @huggingface/tasks, with its names. `EXTRA_TASKS` are the paper's control maps, and media tools
without models. `X-control` makes a control map (edges, depth, a pose, …) from an image; `X-text-to-image`
makes an image from such a map and a text, with a ControlNet.
"""

from __future__ import annotations

from functools import partial

from jarvis_agent.core.tasks.spec import Arg, TaskSpec

TEXT = Arg("text", "text")
QUESTION = Arg("text", "text", description="the question")
TABLE = Arg("table", "table", description="path or URL of a CSV file, its first line the column names")
LABELS = Arg("labels", "data", many=True, description="list of candidate labels")
SENTENCES = Arg("sentences", "text", many=True, description="list of texts to compare with")
IMAGE = Arg("image", "image")
VIDEO = Arg("video", "video")
AUDIO = Arg("audio", "audio")
BOX = Arg("box", "data", description='[xmin, ymin, xmax, ymax] in pixels, a detection, or "left half"')
_optional = partial(Arg, required=False)

HUB_TASKS = (
    TaskSpec("text-classification", "text", "Give a text a label, such as its sentiment or topic.",
             inputs=(TEXT,), outputs=("data", "text"), aliases=("text-cls", "sentiment-analysis")),
    TaskSpec("token-classification", "text", "Find the names of people, places and organisations in a text.",
             inputs=(TEXT,), outputs=("data", "text"),
             aliases=("token-cls", "ner", "named-entity-recognition")),
    TaskSpec("question-answering", "text", "Answer a question from a given context text.",
             inputs=(QUESTION, Arg("context", "text", description="the text that holds the answer")),
             outputs=("text", "data"), aliases=("qa",)),
    TaskSpec("table-question-answering", "text", "Answer a question from a table.",
             inputs=(QUESTION, TABLE), outputs=("text", "data"), aliases=("table-qa", "tableqa")),
    TaskSpec("fill-mask", "text", "Guess the word that stands behind [MASK] in a text.",
             inputs=(Arg("text", "text", description="a text with one [MASK]"),), outputs=("data", "text"),
             aliases=("mask-filling", "masked-language-modeling")),
    TaskSpec("zero-shot-classification", "text", "Sort a text into one of the labels given with it.",
             inputs=(TEXT, LABELS), outputs=("data", "text")),
    TaskSpec("translation", "text", "Translate a text into another language.",
             inputs=(TEXT, _optional("src_lang", "text", description='such as "en"'),
                     _optional("tgt_lang", "text", description='such as "fr"')),
             outputs=("text",)),
    TaskSpec("summarization", "text", "Shorten a text to its main points.",
             inputs=(TEXT, _optional("length", "text", description='such as "three sentences"')),
             outputs=("text",), aliases=("summarize",)),
    TaskSpec("text-generation", "text", "Write or continue a text, or answer freely.",
             inputs=(TEXT,), outputs=("text",), aliases=("text2text-generation", "conversational", "chat")),
    TaskSpec("feature-extraction", "text", "Turn a text into a vector (an embedding).",
             inputs=(TEXT,), outputs=("data",), aliases=("embedding", "text-embedding")),
    TaskSpec("sentence-similarity", "text", "Score how close in meaning a text is to other texts.",
             inputs=(TEXT, SENTENCES), outputs=("data", "text")),
    TaskSpec("text-ranking", "text", "Order texts by how well they answer a query.",
             inputs=(TEXT, SENTENCES), outputs=("data", "text"), aliases=("reranking",)),
    TaskSpec("image-classification", "vision", "Say what the main thing in an image is.",
             inputs=(IMAGE,), outputs=("data", "text"), aliases=("image-cls",)),
    TaskSpec("zero-shot-image-classification", "vision",
             "Sort an image into one of the labels given with it.",
             inputs=(IMAGE, LABELS), outputs=("data", "text")),
    TaskSpec("object-detection", "vision", "Find and count the objects in an image, each with a box.",
             inputs=(IMAGE,), outputs=("image", "data", "text"), aliases=("object-det",)),
    TaskSpec("zero-shot-object-detection", "vision",
             "Find the things in an image that labels name, each with a box.",
             inputs=(IMAGE, LABELS), outputs=("image", "data", "text"),
             aliases=("open-vocabulary-detection",)),
    TaskSpec("keypoint-detection", "vision",
             "Find the joints of the people in an image, and draw their skeletons.",
             inputs=(IMAGE,), outputs=("image", "data", "text"), aliases=("pose-estimation", "keypoint-det")),
    TaskSpec("image-segmentation", "vision",
             "Split an image into the regions of its things, each with a mask.",
             inputs=(IMAGE,), outputs=("image", "data", "text"), aliases=("segmentation",)),
    TaskSpec("mask-generation", "vision", "Cut an image into masks of its parts, without names.",
             inputs=(IMAGE,), outputs=("image", "data", "text"), aliases=("segment-anything",)),
    TaskSpec("depth-estimation", "vision", "Estimate how far away each point of an image is.",
             inputs=(IMAGE,), outputs=("image",)),
    TaskSpec("image-feature-extraction", "vision", "Turn an image into a vector (an embedding).",
             inputs=(IMAGE,), outputs=("data",), aliases=("image-embedding",)),
    TaskSpec("unconditional-image-generation", "vision",
             "Make a random image of the kind that a model was trained on.",
             inputs=(), outputs=("image",)),
    TaskSpec("text-to-image", "vision", "Make an image from a text.",
             inputs=(TEXT,), outputs=("image",)),
    TaskSpec("image-to-text", "vision", "Describe an image in a sentence, or read the text printed in it.",
             inputs=(IMAGE, _optional("text", "text", description='"read" to read the text in the image')),
             outputs=("text",),
             aliases=("image-captioning", "captioning", "ocr", "optical-character-recognition")),
    TaskSpec("image-to-image", "vision", "Change an image, following a text if one is given.",
             inputs=(IMAGE, _optional("text", "text", description="what to change"),
                     _optional("mask", "image", description="white where the image may change")),
             outputs=("image",)),
    TaskSpec("text-to-video", "vision", "Make a video from a text.",
             inputs=(TEXT,), outputs=("video",)),
    TaskSpec("image-to-video", "vision",
             "Make a video that starts from an image, following a text if one is given.",
             inputs=(IMAGE, _optional("text", "text", description="what happens in the video")),
             outputs=("video",)),
    TaskSpec("video-to-video", "vision", "Change a video, following a text if one is given.",
             inputs=(VIDEO, _optional("text", "text", description="what to change")), outputs=("video",)),
    TaskSpec("video-classification", "vision", "Say what happens in a video.",
             inputs=(VIDEO,), outputs=("data", "text"), aliases=("video-cls",)),
    TaskSpec("text-to-3d", "vision", "Make a 3D model from a text.",
             inputs=(TEXT,), outputs=("3d",)),
    TaskSpec("image-to-3d", "vision", "Make a 3D model from an image.",
             inputs=(IMAGE,), outputs=("3d",)),
    TaskSpec("text-to-speech", "audio", "Speak a text aloud, as a sound file.",
             inputs=(TEXT,), outputs=("audio",), aliases=("tts",)),
    TaskSpec("text-to-audio", "audio", "Make music or a sound from a description of it.",
             inputs=(Arg("text", "text", description="what is to be heard"),), outputs=("audio",),
             aliases=("text-to-music", "music-generation", "sound-generation")),
    TaskSpec("automatic-speech-recognition", "audio", "Write down what is said in a recording.",
             inputs=(AUDIO,), outputs=("text", "data"),
             aliases=("asr", "speech-to-text", "speech-recognition", "transcription")),
    TaskSpec("audio-to-audio", "audio", "Clean a recording: take away noise, or separate its voices.",
             inputs=(AUDIO,), outputs=("audio",), aliases=("speech-enhancement", "denoise"), several=True),
    TaskSpec("audio-classification", "audio", "Say what kind of sound a recording holds.",
             inputs=(AUDIO,), outputs=("data", "text"), aliases=("audio-cls",)),
    TaskSpec("voice-activity-detection", "audio", "Find the times at which somebody speaks in a recording.",
             inputs=(AUDIO,), outputs=("data", "text"), aliases=("vad",)),
    TaskSpec("visual-question-answering", "multimodal", "Answer a question about an image.",
             inputs=(QUESTION, IMAGE), outputs=("text", "data"), aliases=("vqa",)),
    TaskSpec("document-question-answering", "multimodal", "Answer a question about the image of a document.",
             inputs=(QUESTION, IMAGE), outputs=("text", "data"), aliases=("dqa", "docvqa")),
    TaskSpec("visual-document-retrieval", "multimodal", "Score how well the images of pages answer a query.",
             inputs=(QUESTION,
                     Arg("image", "image", many=True, description="list of paths or URLs of page images")),
             outputs=("data", "text"), aliases=("document-retrieval",)),
    TaskSpec("image-text-to-text", "multimodal",
             "Follow an instruction about an image: explain it, compare, reason, write about it.",
             inputs=(TEXT, IMAGE), outputs=("text",)),
    TaskSpec("video-text-to-text", "multimodal", "Describe a video, or answer a question about it.",
             inputs=(QUESTION, VIDEO), outputs=("text",),
             aliases=("video-question-answering", "video-captioning")),
    TaskSpec("audio-text-to-text", "multimodal",
             "Follow an instruction about a recording, or answer a question about it.",
             inputs=(QUESTION, AUDIO), outputs=("text",), aliases=("audio-question-answering",)),
    TaskSpec("any-to-any", "multimodal", "Answer a text with an image, a recording and a video at once.",
             inputs=(TEXT, _optional("image", "image"), _optional("audio", "audio"),
                     _optional("video", "video")),
             outputs=("text",)),
    TaskSpec("image-text-to-image", "multimodal", "Edit an image as a text says.",
             inputs=(Arg("text", "text", description="what to change"), IMAGE), outputs=("image",),
             aliases=("image-editing",)),
    TaskSpec("image-text-to-video", "multimodal",
             "Make a video from an image and a text that says what happens.",
             inputs=(Arg("text", "text", description="what happens in the video"), IMAGE),
             outputs=("video",)),
    TaskSpec("tabular-classification", "tabular", "Label each row of a table, by a model for such tables.",
             inputs=(TABLE,), outputs=("table", "data", "text"), aliases=("tabular-cls",)),
    TaskSpec("tabular-regression", "tabular",
             "Predict a number for each row of a table, by a model for such tables.",
             inputs=(TABLE,), outputs=("table", "data", "text")),
    TaskSpec("time-series-forecasting", "tabular",
             "Forecast the number columns of a table that is ordered by time.",
             inputs=(TABLE,
                     _optional("horizon", "data", type="integer", description="rows ahead; 12 if not said")),
             outputs=("table", "data", "text"), aliases=("forecasting",)),
)  # fmt: skip

NOT_CALLABLE: dict[str, str] = {
    "reinforcement-learning": "it acts in an environment, and a run has none",
    "robotics": "it moves a robot, and a run has none",
    "graph-ml": "its models share no form of input that could be asked for",
    "multiple-choice": "hidden on the Hub: zero-shot-classification and question-answering do its work",
    "text-retrieval": "hidden on the Hub: sentence-similarity and text-ranking do its work",
    "tabular-to-text": "hidden on the Hub: text-generation does its work",
    "table-to-text": "hidden on the Hub: table-question-answering and text-generation do its work",
    "other": "it names no task",
}
"""The task types of the Hub's list that are no tasks here, and why."""

_MAPPED_BY = {
    "depth": "depth-estimation",
    "normal": "depth-estimation",
    "openpose": "keypoint-detection",
    "seg": "image-segmentation",
}
"""Task types whose models make a control map; algorithms make the others."""


def _control(name: str, what: str, *aliases: str) -> tuple[TaskSpec, TaskSpec]:
    """The tasks image → map and map + text → image for one kind of control map."""
    also = tuple(f"{alias}{end}" for alias in aliases for end in ("-control", "-detection"))
    also_image = tuple(f"{alias}{end}" for alias in aliases for end in ("-text-to-image", "-to-image"))
    return (
        TaskSpec(f"{name}-control", "control", f"Make the {what} of an image.",
                 inputs=(IMAGE,), outputs=("image",),
                 aliases=(f"control-{name}", f"{name}-detection", f"image-to-{name}", *also),
                 needs_model=name in _MAPPED_BY, models_of=_MAPPED_BY.get(name, "")),
        TaskSpec(f"{name}-text-to-image", "control",
                 f"Make a new image from a text and the {what} of another image.",
                 inputs=(TEXT, Arg("image", "image", description=f"the {what}")), outputs=("image",),
                 aliases=(f"{name}-to-image", *also_image),
                 listing=(("filter", "controlnet"), ("search", name))),
    )  # fmt: skip


EXTRA_TASKS: tuple[TaskSpec, ...] = (
    TaskSpec("combine-video-audio", "media", "Put a sound under a video, such as speech that dubs it.",
             inputs=(VIDEO, AUDIO), outputs=("video",), aliases=("dub-video", "video-dubbing"),
             needs_model=False),
    TaskSpec("extract-audio", "media", "Take the sound out of a video, or convert sound.",
             inputs=(Arg("video", "video or audio"),
                     _optional("format", "text", description='"mp3", "wav", "flac", "ogg", "m4a"')),
             outputs=("audio",), aliases=("video-to-audio",), needs_model=False),
    TaskSpec("extract-frames", "media", "Take pictures out of a video.",
             inputs=(VIDEO,
                     _optional("count", "data", type="integer", description="how many; 8 if not said")),
             outputs=("image", "data"), aliases=("video-to-images", "video-frames"), needs_model=False,
             several=True),
    TaskSpec("resize-image", "media", "Make an image larger or smaller.",
             inputs=(IMAGE, _optional("width", "data", type="integer", description="pixels"),
                     _optional("height", "data", type="integer", description="pixels"),
                     _optional("scale", "data", type="number", description="percent")),
             outputs=("image",), aliases=("image-resizing",), needs_model=False),
    TaskSpec("crop-image", "media", "Cut a box, half, third, corner or square out of an image.",
             inputs=(IMAGE, BOX), outputs=("image",), aliases=("image-cropping",), needs_model=False),
    TaskSpec("edit-image", "media",
             "Turn, mirror, brighten, frame or convert an image, or make it greyscale.",
             inputs=(IMAGE, _optional("greyscale", "data", type="boolean", description="true"),
                     _optional("rotate", "data", type="number", description="degrees clockwise"),
                     _optional("flip", "text", description='"horizontal" or "vertical"'),
                     _optional("brightness", "data", type="number", description="percent"),
                     _optional("border", "data", type="integer", description="pixels"),
                     _optional("format", "text", description='"png", "jpeg", "webp", "gif", "bmp", "tiff"')),
             outputs=("image",), aliases=("rotate-image", "flip-image", "convert-image"), needs_model=False),
    TaskSpec("media-info", "media",
             "Look up facts of a file: format, size, duration, frames, pages, words or rows.",
             inputs=(Arg("file", "file", description="any, or a text that a task made"),),
             outputs=("data", "text"), aliases=("file-info",), needs_model=False),
    # control maps (the paper's controlnet-sd)
    *_control("canny", "canny edge image"),
    *_control("hed", "soft edge (HED) image"),
    *_control("mlsd", "straight line (MLSD) image"),
    *_control("scribble", "scribble drawing"),
    *_control("depth", "depth map"),
    *_control("normal", "normal map"),
    *_control("openpose", "body pose", "pose"),
    *_control("seg", "segmentation map", "segmentation"),
)  # fmt: skip
