"""A linear layer with bias and ReLU, with weights of its own for each element of the batch."""

import torch
from torch import nn


class Model(nn.Module):
    """y[b] = relu(x[b] weight[b] + bias[b])."""

    def __init__(self, groups: int, in_features: int, out_features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(
            torch.randn(groups, in_features, out_features) / in_features**0.5
        )
        self.bias = nn.Parameter(torch.randn(groups, 1, out_features))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(torch.bmm(x, self.weight) + self.bias)


groups = 32
rows = 256
in_features = 512
out_features = 384


def get_inputs():
    return [torch.rand(groups, rows, in_features)]


def get_init_inputs():
    return [groups, in_features, out_features]
