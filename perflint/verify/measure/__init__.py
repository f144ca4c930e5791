"""How fast variants are: races, their samples, and what these prove."""
