"""Conformer: attention and gated depthwise convolution in turn, over frames of sound."""

from __future__ import annotations

from torch import Tensor, nn

from routecast.datasets.zoo.torch_modules.layers import Attention, Scaled, Transposed, mlp, pre_norm


def _convolution(width: int, kernel: int = 15) -> nn.Module:
    """Returns the convolution module, over ``(batch, length, width)``."""
    return Transposed(
        nn.Sequential(
            nn.Conv1d(width, 2 * width, 1),
            nn.GLU(1),
            nn.Conv1d(width, width, kernel, padding=kernel // 2, groups=width, bias=False),
            nn.BatchNorm1d(width),
            nn.SiLU(),
            nn.Conv1d(width, width, 1),
        )
    )


def _block(width: int) -> nn.Sequential:
    """Returns a block: half a perceptron, attention, convolution, half a perceptron."""
    before, after = (Scaled(mlp(width, 4 * width, width, activation=nn.SiLU), 0.5) for _ in range(2))
    middle = (Attention(width, 4), _convolution(width))
    return nn.Sequential(*(pre_norm(width, each) for each in (before, *middle, after)), nn.LayerNorm(width))


class Conformer(nn.Module):
    """Labels every second frame of a spectrogram ``(batch, bands, frames)``."""

    def __init__(self, width: int, depth: int, bands: int) -> None:
        super().__init__()
        self.enter = nn.Sequential(nn.Conv1d(bands, width, 3, 2, 1), nn.ReLU())
        self.blocks = nn.Sequential(*(_block(width) for _ in range(depth)))
        self.head = nn.Linear(width, 64)

    def forward(self, signal: Tensor) -> Tensor:
        """Returns the labels of each frame kept."""
        frames = self.blocks(self.enter(signal).transpose(1, 2))
        labels: Tensor = self.head(frames)
        return labels
