"""What the programs import from another file of their project, which is told to perflint."""

import torch

HELD = None
STORE = []


def same(given):
    return given


def paired(given):
    return given, 1


def flat(given):
    return given.view(-1)


def last():
    return STORE[-1]


def total(given):
    return given.sum()


def describe(value):
    return type(value).__name__, str(value)


def wipe(given):
    given.zero_()


def wipe_all():
    for each in STORE:
        each.zero_()


def wipe_scripted(given: torch.Tensor):
    given.zero_()
    return given


class Holder:
    def __init__(self, given):
        self.held = given

    def wipe(self):
        self.held.zero_()


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
