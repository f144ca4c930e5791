"""A dataset of tensors is walked while they may change."""

import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
kept = []


def collect():
    rows = torch.arange(8.0)
    # slot made: rows
    dataset = TensorDataset(rows)
    seen = []
    # slot start: rows dataset.tensors[0]
    for (batch,) in DataLoader(dataset):
        # slot first: rows! batch
        seen.append(batch.to(device))
        # slot last: rows! batch
    return seen, rows


def run():
    torch.manual_seed(0)
    results = collect()
    return {"results": results, "kept": kept}
