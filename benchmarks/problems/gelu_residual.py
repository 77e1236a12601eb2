"""GELU, a learnt scale a channel, and a residual: the end of a ConvNeXt block."""

import torch
from torch import nn


class Model(nn.Module):
    """y = residual + scale * gelu(x), where scale is one number a channel (NCHW)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.gelu = nn.GELU()
        self.scale = nn.Parameter(torch.rand(channels, 1, 1))

    def forward(self, x: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        return residual + self.scale * self.gelu(x)


batch = 32
channels = 256
height = 32
width = 32


def get_inputs():
    shape = (batch, channels, height, width)
    return [torch.randn(shape), torch.randn(shape)]


def get_init_inputs():
    return [channels]
