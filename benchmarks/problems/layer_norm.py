"""Layer norm over the channels of each pixel, as ConvNeXt has it between its stages."""

import torch
from torch import nn


class Model(nn.Module):
    """y = (x - mean(x)) / sqrt(var(x) + eps) * weight + bias, over the channels (NCHW)."""

    def __init__(self, channels: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.rand(channels, 1, 1) + 0.5)
        self.bias = nn.Parameter(torch.randn(channels, 1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        centred = x - x.mean(dim=1, keepdim=True)
        variance = (centred * centred).mean(dim=1, keepdim=True)
        return centred / torch.sqrt(variance + self.eps) * self.weight + self.bias


batch = 16
channels = 384
height = 28
width = 28


def get_inputs():
    return [torch.randn(batch, channels, height, width)]


def get_init_inputs():
    return [channels, 1e-5]
