"""The fixed texts of reports, in English and Chinese.

phrases("这张图片里有什么？").failed      # "失败"
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

_HAN = re.compile(r"[\u4e00-\u9fff]")
_KANA_OR_HANGUL = re.compile(r"[\u3040-\u30ff\uac00-\ud7af]")


@dataclass(frozen=True, slots=True)
class Phrases:
    """The texts of a report, in English by default; names in braces are filled in."""

    found: str = "Here is what came out:"
    nothing: str = "I could not do this."
    total: str = "In all pictures together: {counts}"
    how: str = "How it was done:"
    troubles: str = "What did not work:"
    failed: str = "failed"
    skipped: str = "skipped"
    trouble: str = "{titles}: {state}: {reason}"
    skipped_too: str = "so this was skipped: {tasks}"
    no_reason: str = "no reason is known"
    kinds: Mapping[str, str] = field(default_factory=dict)
    helps: str = "What helps: {advice}"
    notes: str = "About the plan:"
    note: str = "Note: {text}"
    empty: str = "(no text)"
    result_of: str = "result of {tasks}"
    seconds: str = "{number:.1f} s"
    more_files: str = "and {number} more files beside it"
    more_text: str = "… ({number} more characters; the run holds the whole text)"
    no_file: str = "(no such file)"
    not_understood: str = "I did not understand what is to be done, so nothing was done."
    examples: tuple[str, str, str] = (
        "Requests that work look like these:",
        "Describe the image photo.jpg",
        "Read the text in page.png aloud, then transcribe the recording",
    )
    set_up: str = (
        "No language model is set up, so only plain requests are understood. To have one, set OPENAI_API_KEY "
        "or HF_TOKEN, or JARVIS_BASE_URL and JARVIS_MODEL for a server of your own."
    )
    no_answer: str = "The language model could not write the answer ({error}), so this is a plain report."
    broke_off: str = "The answer broke off here: {error} What was done:"
    not_run: str = "No expert worked on this: {notes}"
    rejected: str = "The plan was rejected, so nothing was run."


ENGLISH = Phrases()
CHINESE = Phrases(
    found="结果如下：",
    nothing="这个请求没有完成。",
    total="所有图片合计：{counts}",
    how="处理过程：",
    troubles="未完成的任务：",
    failed="失败",
    skipped="已跳过",
    trouble="{titles}：{state}（{reason}）",
    skipped_too="因此也跳过了：{tasks}",
    no_reason="原因不明",
    kinds={
        "NoCandidateError": "，没有可用的模型",
        "AllCandidatesFailedError": "，所有候选模型都失败了",
        "AttemptTimeoutError": "，超时",
        "DeadlineError": "，超时",
        "BadInputError": "，输入无法使用",
        "OutOfMemoryError": "，内存不足",
    },
    helps="可以这样解决：{advice}",
    notes="关于计划：",
    note="说明：{text}",
    empty="（没有文字）",
    result_of="{tasks} 的结果",
    seconds="{number:.1f} 秒",
    more_files="同一目录下还有 {number} 个文件",
    more_text="……（其余 {number} 个字符见完整结果）",
    no_file="（没有这个文件）",
    not_understood="我没有理解要做什么，所以什么也没有做。",
    examples=(
        "可以这样提出请求：",
        "描述图片 photo.jpg",
        "朗读 page.png 里的文字，然后把录音转成文字",
    ),
    set_up=(
        "没有设置语言模型，因此只能理解简单的请求。要使用语言模型，请设置 OPENAI_API_KEY 或 HF_TOKEN，"
        "或为自己的服务器设置 JARVIS_BASE_URL 和 JARVIS_MODEL。"
    ),
    no_answer="语言模型没能写出回答（{error}），以下是简要报告。",
    broke_off="回答在此中断：{error} 已完成的工作：",
    not_run="没有专家模型处理这个请求：{notes}",
    rejected="计划被拒绝，所以什么也没有执行。",
)


def phrases(request: str) -> Phrases:
    """The phrases for the language of a request: Chinese for Chinese, English for everything else."""
    return CHINESE if _HAN.search(request) and not _KANA_OR_HANGUL.search(request) else ENGLISH
