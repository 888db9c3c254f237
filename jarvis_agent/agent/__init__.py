"""JarvisAgent and the pipeline of one run: plan, select, execute, respond."""
