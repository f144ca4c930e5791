"""The files of a run: found, tied together, cached, and checked in worker processes."""
