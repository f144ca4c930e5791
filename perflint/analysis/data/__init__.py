"""DataLoaders: where they are built, what they read, and what starts their workers."""
