"""Files as programs to check: Python sources and notebooks, preserved but for the edits."""

NOTEBOOK = ".ipynb"  # how names of notebooks end
