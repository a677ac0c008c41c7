"""The network, the data and one epoch order: what the plain training and both workers of digits.py share."""

import sklearn.datasets
import torch

EPOCHS = 12
BATCH = 64
TEST_IMAGES = 597  # a third; 0.5 points are 2.98 of them


def network(dtype: torch.dtype) -> torch.nn.Module:
    """Two convolutions with BatchNorm; the same weights at each call."""
    torch.manual_seed(7)
    return torch.nn.Sequential(
        torch.nn.Conv2d(1, 16, 3, padding=1, bias=False),
        torch.nn.BatchNorm2d(16),
        torch.nn.ReLU(inplace=True),
        torch.nn.Conv2d(16, 32, 3, padding=1, bias=False),
        torch.nn.BatchNorm2d(32),
        torch.nn.ReLU(inplace=True),
        torch.nn.MaxPool2d(2),
        torch.nn.Flatten(),
        torch.nn.Linear(32 * 4 * 4, 10),
    ).to(dtype)


def optimizer(model: torch.nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)


def data(dtype: torch.dtype):
    """(images, labels) for training and for the test: 8x8 images of scikit-learn's digits, pixels 0 to 16."""
    digits = sklearn.datasets.load_digits()
    images = torch.tensor(digits.images, dtype=dtype).unsqueeze(1)
    labels = torch.tensor(digits.target)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(1))
    images, labels = images[order], labels[order]
    return (images[TEST_IMAGES:], labels[TEST_IMAGES:]), (images[:TEST_IMAGES], labels[:TEST_IMAGES])


def batches(count: int):
    """The indices of each step's images, in the same order at each call; the rest of an epoch is left out."""
    generator = torch.Generator().manual_seed(2)
    for _ in range(EPOCHS):
        order = torch.randperm(count, generator=generator)
        for first in range(0, count - BATCH + 1, BATCH):
            yield order[first : first + BATCH]


def accuracy(model: torch.nn.Module, images: torch.Tensor, labels: torch.Tensor) -> float:
    model.eval()
    with torch.no_grad():
        return 100 * float((model(images).argmax(1) == labels).float().mean())
