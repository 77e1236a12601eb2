"""Convolution of images by 3x3 filters."""

import torch
from torch import nn


class Model(nn.Module):
    """A convolution that keeps the size of the images (NCHW)."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size=3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(x)


batch = 16
in_channels = 32
out_channels = 64
height = 64
width = 64


def get_inputs():
    return [torch.rand(batch, in_channels, height, width)]


def get_init_inputs():
    return [in_channels, out_channels]
