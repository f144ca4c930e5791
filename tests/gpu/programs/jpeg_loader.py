"""One epoch over JPEG files that the training process decodes itself, for a small convolutional network."""

import io

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
torch.manual_seed(0)
IMAGES, SIDE = (2048, 256) if device.type == "cuda" else (32, 64)


class Pictures(Dataset):
    def __init__(self):
        random = np.random.default_rng(0)
        self.files = []
        for _ in range(IMAGES):
            pixels = random.integers(0, 255, (SIDE // 8, SIDE // 8, 3), dtype=np.uint8)
            buffer = io.BytesIO()
            Image.fromarray(pixels).resize((SIDE, SIDE), Image.BICUBIC).save(buffer, "JPEG", quality=90)
            self.files.append(buffer.getvalue())

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        image = Image.open(io.BytesIO(self.files[index])).convert("RGB").resize((SIDE, SIDE))
        return torch.from_numpy(np.array(image)).permute(2, 0, 1).float() / 255, index % 10


model = nn.Sequential(nn.Conv2d(3, 64, 7, 4), nn.ReLU(), nn.Conv2d(64, 128, 3, 2), nn.ReLU(), nn.Flatten(1)).to(device)
head = nn.LazyLinear(10).to(device)
loader = DataLoader(Pictures(), batch_size=64)


def train():
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for images, labels in loader:
        loss = F.cross_entropy(head(model(images.to(device))), labels.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def run():
    torch.manual_seed(0)
    train()
