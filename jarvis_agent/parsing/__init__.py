"""How a plan is read from what a language model wrote: tolerant JSON, drafts of tasks, and their mending."""
