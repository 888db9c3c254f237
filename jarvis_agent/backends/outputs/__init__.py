"""From a model's raw output to plain JSON, a summary and files. `adapters.py` maps tasks to adapters."""
