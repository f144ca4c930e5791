"""What functions and methods of Python and numpy do with what they are given."""

from __future__ import annotations

NEW = frozenset(  # something that shares nothing
    "abs all any bool bytes callable chr complex divmod float format hasattr hash help hex id input int isinstance"
    " issubclass len oct open ord pow print range repr round str type delattr".split()
)
SEE_ALL = frozenset({"builtins.globals", "builtins.locals", "builtins.exec", "builtins.eval"})
CONTAINERS_OF = frozenset("list tuple dict set frozenset sorted enumerate zip".split())  # new ones, of the same items
PURE_PACKAGES = frozenset(
    "builtins math random time os sys logging warnings typing collections itertools functools copy re json dataclasses"
    " enum abc contextlib pathlib datetime types string numpy tqdm einops operator".split()
)
WRITES_FIRST = frozenset(  # of numpy, and of Python's modules of functions
    "copyto put place putmask fill_diagonal put_along_axis shuffle at heappush heappop insort setitem delitem".split()
)
HOLDS = frozenset({"get", "items", "keys", "values", "copy"})
FILLS = frozenset("append appendleft extend extendleft insert add update setdefault put push register".split())
TAKES = frozenset("pop popleft popitem clear remove discard sort reverse fill partition itemset resize".split())
