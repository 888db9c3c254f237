"""Models of the Hub run with transformers; backend.py is the table of tasks."""
