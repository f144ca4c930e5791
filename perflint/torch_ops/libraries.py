"""What is known of packages beside torch: which write to what they are given, and which draw random numbers."""

from __future__ import annotations

# Their functions, and the objects that these make when called, keep nothing that they are given beyond their result,
# run nothing of the program but functions that they are given, and write to no argument but `out`, `dst`, the first
# of those in WRITES_FIRST and the second of those in WRITES_SECOND.
_OF_PYTHON = frozenset(
    "builtins math random time os sys logging warnings typing collections itertools functools copy re json dataclasses"
    " enum abc contextlib pathlib datetime types string numpy tqdm einops operator heapq bisect".split()
)
# They read and convert pictures, sound and tables: what they make is a copy, or a view of what they were given.
_OF_FILES = frozenset(
    "io csv glob struct base64 pickle PIL cv2 imageio skimage pandas h5py soundfile librosa nibabel pydicom"
    " tifffile".split()
)
PURE_PACKAGES = _OF_PYTHON | _OF_FILES
_PURE_MODULES = ("torchvision.transforms.", "torchvision.io.", "perflint.runtime.reports.")  # of larger packages

WRITES_FIRST = frozenset(  # of numpy, of Python's modules of functions, and of OpenCV's, which draws in place
    "copyto nan_to_num put place putmask fill_diagonal put_along_axis shuffle at setitem delitem heapify heappush"
    " heappop heapreplace heappushpop insort insort_left insort_right"
    " line arrowedLine rectangle circle ellipse polylines fillPoly fillConvexPoly drawContours drawMarker putText"
    " floodFill grabCut accumulate accumulateWeighted setIdentity randu randn randShuffle".split()
)
WRITES_SECOND = frozenset({"struct.pack_into"})
READERS = frozenset(  # functions whose result shares nothing with the path, file or bytes that they are given
    "open load loads imread imdecode read_image decode_image decode_jpeg decode_png read_csv read_json read_pickle"
    " fromfile loadtxt genfromtxt".split()
)

_COMPOSERS = frozenset("Compose RandomApply RandomChoice RandomOrder Lambda".split())
_FIXED_TRANSFORMS = _COMPOSERS - {"RandomApply", "RandomChoice", "RandomOrder"} | frozenset(
    "ToTensor PILToTensor ToPILImage ToImage ToPureTensor ToDtype ConvertImageDtype Normalize Resize Scale CenterCrop"
    " Pad Grayscale FiveCrop TenCrop Identity LinearTransformation".split()
)
_DRAWS_NOTHING = PURE_PACKAGES | {"scipy"}

OF_STATE = frozenset(  # the methods of generators of random numbers that draw nothing
    "seed getstate setstate get_state set_state manual_seed initial_seed spawn jumped".split()
)


def is_pure(name: str) -> bool:
    """Does a call of the function, or of an instance of the class, write to nothing but what is noted above?"""
    return name.partition(".")[0] in PURE_PACKAGES or name.startswith(_PURE_MODULES)


def composes(name: str) -> bool:
    return name.startswith("torchvision.transforms.") and name.rpartition(".")[2] in _COMPOSERS


def makes_generator(name: str) -> bool:
    """Does the function or class called `name` make a generator of random numbers?"""
    package, _, last = name.rpartition(".")
    is_maker = last[:1].isupper() or last == "default_rng"
    return name == "torch.Generator" or (package in ("random", "numpy.random", "cupy.random") and is_maker)


def may_draw(name: str) -> bool:
    """May the function, or an instance of the class, draw random numbers, itself?"""
    head, _, rest = name.partition(".")
    if "rand" in name.lower() or name.endswith(".rvs"):  # as SciPy calls it
        return True
    if name.startswith("torchvision.transforms.") and "functional" not in rest:
        return name.rpartition(".")[2] not in _FIXED_TRANSFORMS
    return head not in _DRAWS_NOTHING and not name.startswith(_PURE_MODULES)
