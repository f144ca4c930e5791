"""What the programs import from a file that perflint never sees."""

import torch

STORE = []


def same(given):
    return given


def wipe(given):
    given.zero_()


def wipe_all():
    for each in STORE:
        each.zero_()


def describe(value):
    return type(value).__name__, str(value)


def make_optimizer(tensors):
    return torch.optim.SGD(tensors, lr=1.0)


class Unknown:
    def __init__(self, given):
        self.given = given

    def run(self):
        self.given.zero_()


class Special:
    def __init__(self, given):
        self.given = given

    def __len__(self):
        self.given.zero_()
        return 1

    def __add__(self, other):
        self.given.zero_()
        return other

    def __str__(self):
        self.given.zero_()
        return ""

    def __getitem__(self, index):
        self.given.zero_()
        raise IndexError

    def __eq__(self, other):
        self.given.zero_()
        return True

    def __hash__(self):
        return 1
