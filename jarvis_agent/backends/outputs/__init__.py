"""The adapters, by what they adapt: labels, texts, finds in images, images, sounds, videos, solids, tables.

An adapter is a function of an expert's raw output and the Call; it returns an Adapted:

    adapted = classes([{"label": "cat", "score": 0.98}], call)
    adapted.output, adapted.summary      # [{"label": "cat", "score": 0.98}], "cat (0.98)"

It raises UnexpectedError where the raw output has not the form that it takes.
"""
