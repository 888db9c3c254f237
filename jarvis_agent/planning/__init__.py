"""Stage 1: a request becomes a plan of typed tasks."""
