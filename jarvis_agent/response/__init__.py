"""Stage 4: the answer is written from the actual results."""
