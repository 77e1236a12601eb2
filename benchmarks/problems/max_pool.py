"""Max pooling with a large window and stride 1, as spatial pyramid pooling has it."""

import torch
from torch import nn


class Model(nn.Module):
    """The largest of the k x k pixels around each pixel (NCHW)."""

    def __init__(self, kernel_size: int) -> None:
        super().__init__()
        self.pool = nn.MaxPool2d(kernel_size, stride=1, padding=kernel_size // 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.pool(x)


batch = 16
channels = 64
height = 80
width = 80
kernel_size = 9


def get_inputs():
    return [torch.randn(batch, channels, height, width)]


def get_init_inputs():
    return [kernel_size]
