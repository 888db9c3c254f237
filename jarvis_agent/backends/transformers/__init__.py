"""Models of the Hub run with transformers; pipelines.py is the table of tasks."""
