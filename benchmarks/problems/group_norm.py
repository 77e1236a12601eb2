"""Group norm: images are normalised over groups of channels."""

import torch
from torch import nn


class Model(nn.Module):
    """Group norm with a learnt scale and shift a channel (NCHW)."""

    def __init__(self, groups: int, channels: int, eps: float) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(groups, channels, eps=eps)
        self.norm.weight.data.uniform_(0.5, 1.5)
        self.norm.bias.data.uniform_(-1.0, 1.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x)


batch = 16
channels = 128
groups = 32
height = 64
width = 64


def get_inputs():
    return [torch.rand(batch, channels, height, width)]


def get_init_inputs():
    return [groups, channels, 1e-5]
