"""Depthwise convolution: each channel is convolved by a filter of its own."""

import torch
from torch import nn


class Model(nn.Module):
    """A depthwise convolution that keeps the size of the images (NCHW)."""

    def __init__(self, channels: int, kernel_size: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(
            channels, channels, kernel_size, padding=kernel_size // 2, groups=channels
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(x)


batch = 8
channels = 96
height = 112
width = 112
kernel_size = 7


def get_inputs():
    return [torch.rand(batch, channels, height, width)]


def get_init_inputs():
    return [channels, kernel_size]
