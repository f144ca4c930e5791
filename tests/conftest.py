"""Generated tests try the same programs in every run; `pytest --hypothesis-profile=default` tries others."""

from hypothesis import settings

settings.register_profile("repeatable", derandomize=True)
settings.load_profile("repeatable")
