"""From a model's raw output to plain JSON, a summary and files. `adapters.py` maps tasks to adapters.

    adapted = classes([{"label": "cat", "score": 0.98}], call)
    adapted.output, adapted.summary      # [{"label": "cat", "score": 0.98}], "cat (0.98)"

An adapter is a function of the raw output and the Call that returns an `Adapted`. It raises `UnexpectedError`
for a raw output of another form.
"""
