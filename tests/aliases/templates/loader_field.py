"""A dataset of rows of its own is walked while they may change."""

import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
kept = []


class Rows(Dataset):
    def __init__(self, rows, scales):
        self.rows, self.scales = rows, scales

    def __len__(self):
        return 8

    def __getitem__(self, index):
        return self.rows[index] * self.scales[index]


def collect():
    rows, scales = torch.arange(8.0), [1.0] * 9
    # slot made: rows scales=list
    dataset = Rows(rows, scales)
    seen = []
    # slot start: rows dataset.rows scales=list dataset.scales=list
    for batch in DataLoader(dataset):
        # slot first: rows! batch dataset.rows! scales=list dataset.scales=list
        seen.append(batch.to(device))
        # slot last: rows! dataset.rows! scales=list
    return seen, rows, scales


def run():
    torch.manual_seed(0)
    results = collect()
    return {"results": results, "kept": kept}
