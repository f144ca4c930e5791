"""A dataset of rows of its own is walked while they may change."""

import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
kept = []


class Rows(Dataset):
    def __init__(self):
        self.rows, self.scales = torch.arange(8.0), [1.0] * 9

    def __len__(self):
        return 8

    def __getitem__(self, index):
        # slot item: self.rows!
        return self.rows[index] * self.scales[index]


def collect():
    dataset = Rows()
    seen = []
    # slot start: dataset.rows dataset.scales=list
    for batch in DataLoader(dataset):
        # slot first: batch dataset.rows! dataset.scales=list
        seen.append(batch.to(device))
        # slot last: dataset.rows!
    return seen


def run():
    torch.manual_seed(0)
    results = collect()
    return {"results": results, "kept": kept}
