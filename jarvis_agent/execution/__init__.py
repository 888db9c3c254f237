"""Stage 3: tasks run as soon as their inputs are ready."""
