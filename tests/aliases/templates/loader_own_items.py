"""Items are handed out as they are."""

import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
kept = []


class Rows(Dataset):
    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return 8

    def __getitem__(self, index):
        row = self.rows[index] + 1
        # slot item: row self.rows!
        return row


def collect():
    dataset = Rows(torch.arange(8.0))
    seen = []
    # slot start: dataset.rows
    for batch in DataLoader(dataset, batch_size=None):
        # slot first: batch
        batch *= 2
        seen.append(batch.to(device))
        # slot last: batch
    return seen, dataset.rows


def run():
    torch.manual_seed(0)
    results = collect()
    return {"results": results, "kept": kept}
