"""The Hub's own task types: its official list, less what cannot be run (`NOT_CALLABLE`).

The list is `PIPELINE_DATA` of the npm package @huggingface/tasks; names are spelt as there.
"""

from __future__ import annotations

from jarvis_agent.core.tasks.rows import task_rows
from jarvis_agent.core.tasks.spec import TaskSpec

HUB_TASKS: tuple[TaskSpec, ...] = (
    *task_rows(
        "text",
        """
text-classification | text -> data, text | text-cls, sentiment-analysis
    Give a text a label, such as its sentiment or topic.
token-classification | text -> data, text | token-cls, ner, named-entity-recognition
    Find the names of people, places and organisations in a text.
question-answering | question, context -> text, data | qa
    Answer a question from a given context text.
table-question-answering | question, table -> text, data | table-qa, tableqa
    Answer a question from a table.
fill-mask | masked-text -> data, text | mask-filling, masked-language-modeling
    Guess the word that stands behind [MASK] in a text.
zero-shot-classification | text, labels -> data, text
    Sort a text into one of the labels given with it.
translation | text, src_lang?, tgt_lang? -> text
    Translate a text into another language.
summarization | text -> text | summarize
    Shorten a text to its main points.
text-generation | prompt -> text | text2text-generation, conversational, chat
    Write or continue a text, or answer freely.
feature-extraction | text -> data | embedding, text-embedding
    Turn a text into a vector of numbers (an embedding).
sentence-similarity | text, sentences -> data, text
    Score how close in meaning a text is to other texts.
text-ranking | text, sentences -> data, text | reranking
    Order texts by how well they answer a query.
""",
    ),
    *task_rows(
        "vision",
        """
image-classification | image -> data, text | image-cls
    Say what the main thing in an image is, with scores.
zero-shot-image-classification | image, labels -> data, text
    Sort an image into one of the labels given with it.
object-detection | image -> image, data, text | object-det
    Find and count the objects in an image, each with a box and a score.
zero-shot-object-detection | image, labels -> image, data, text | open-vocabulary-detection
    Find the things in an image that are named by labels, each with a box and a score.
keypoint-detection | image -> image, data, text | pose-estimation, keypoint-det
    Find the joints of the people in an image, and draw their skeletons.
image-segmentation | image -> image, data, text | segmentation
    Split an image into the regions of its things, each with a mask.
mask-generation | image -> image, data, text | segment-anything
    Cut an image into masks of all its parts, without naming them.
depth-estimation | image -> image
    Estimate how far away each point of an image is.
image-feature-extraction | image -> data | image-embedding
    Turn an image into a vector of numbers (an embedding).
unconditional-image-generation | -> image
    Make an image of the kind that a model was trained on, without any input.
text-to-image | prompt -> image
    Make an image from a text.
image-to-text | image, read? -> text | image-captioning, captioning, ocr, optical-character-recognition
    Describe an image in a sentence, or read the text printed in it.
image-to-image | image, change?, mask? -> image
    Change an image, following a text if one is given.
text-to-video | prompt -> video
    Make a video from a text.
image-to-video | image, action? -> video
    Make a video that starts from an image, following a text if one is given.
video-to-video | video, change? -> video
    Change a video, following a text if one is given.
video-classification | video -> data, text | video-cls
    Say what happens in a video, with scores.
text-to-3d | prompt -> 3d
    Make a 3D model from a text.
image-to-3d | image -> 3d
    Make a 3D model from an image.
""",
    ),
    *task_rows(
        "audio",
        """
text-to-speech | text -> audio | tts
    Speak a text aloud, as a sound file.
text-to-audio | sound -> audio | text-to-music, music-generation, sound-generation
    Make music or a sound from a description of it.
automatic-speech-recognition | audio -> text, data | asr, speech-to-text, speech-recognition, transcription
    Write down what is said in a recording.
audio-to-audio | audio -> audio | speech-enhancement, denoise
    Clean a recording: take away noise, or separate its voices.
audio-classification | audio -> data, text | audio-cls
    Say what kind of sound a recording holds, with scores.
voice-activity-detection | audio -> data, text | vad
    Find the times at which somebody speaks in a recording.
""",
    ),
    *task_rows(
        "multimodal",
        """
visual-question-answering | question, image -> text, data | vqa
    Answer a question about an image.
document-question-answering | question, image -> text, data | dqa, docvqa
    Answer a question about the image of a document.
visual-document-retrieval | question, pages -> data, text | document-retrieval
    Score how well the images of pages answer a query.
image-text-to-text | prompt, image -> text
    Follow an instruction about an image: explain it, compare, reason, write about it.
video-text-to-text | question, video -> text | video-question-answering, video-captioning
    Describe a video, or answer a question about it.
audio-text-to-text | question, audio -> text | audio-question-answering
    Follow an instruction about a recording, or answer a question about it.
any-to-any | prompt, image?, audio?, video? -> text
    Answer a text together with an image, a recording or a video, all at once.
image-text-to-image | change, image -> image | image-editing
    Edit an image as a text says.
image-text-to-video | action, image -> video
    Make a video from an image and a text that says what happens.
""",
    ),
    *task_rows(
        "tabular",
        """
tabular-classification | table -> table, data, text | tabular-cls
    Give each row of a table a label, with a model trained for such tables.
tabular-regression | table -> table, data, text
    Predict a number for each row of a table, with a model trained for such tables.
time-series-forecasting | table, horizon? -> table, data, text | forecasting
    Forecast how the number columns of a table, ordered by time, go on.
""",
    ),
)

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
