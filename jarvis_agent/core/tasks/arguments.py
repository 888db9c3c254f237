"""The arguments that several task types share, each in the one spelling that plans use."""

from __future__ import annotations

from jarvis_agent.core.tasks.spec import Arg

TEXT = Arg("text", "text")
IMAGE = Arg("image", "image")
AUDIO = Arg("audio", "audio")
VIDEO = Arg("video", "video")
QUESTION = Arg("text", "text", description="the question")
PROMPT = Arg("text", "text", description="the prompt")
LABELS = Arg("labels", "data", many=True, description="list of candidate labels")
SENTENCES = Arg("sentences", "text", many=True, description="list of texts to compare with")
MASK = Arg("mask", "image", required=False, description="white where the image may change")
SRC_LANG = Arg("src_lang", "text", required=False, description='language of the text, for example "en"')
TABLE = Arg("table", "table", description="path or URL of a CSV file, its first line the column names")
TGT_LANG = Arg("tgt_lang", "text", required=False, description='language to translate into, for example "fr"')
