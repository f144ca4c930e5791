"""The files of a run: discovery, imports, summaries between files, cache, and worker processes."""
