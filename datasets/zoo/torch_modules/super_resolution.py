"""Super-resolution: residual convolutions at full size, enlarged at the end by moving channels into space."""

from __future__ import annotations

from torch import nn

from routecast.datasets.zoo.torch_modules.layers import Residual, Scaled


def _block(width: int) -> nn.Module:
    """Returns a residual block; scaled, for want of a normalisation (which would blur the image)."""
    first, second = (nn.Conv2d(width, width, 3, padding=1) for _ in range(2))
    return Residual(Scaled(nn.Sequential(first, nn.PReLU(), second), 0.3))


class Edsr(nn.Sequential):
    """Doubles the size of an image."""

    def __init__(self, width: int, depth: int) -> None:
        trunk = Residual(nn.Sequential(*(_block(width) for _ in range(depth))))
        enter, leave = nn.Conv2d(3, width, 5, padding=2), nn.Conv2d(width, 12, 3, padding=1)
        super().__init__(enter, trunk, leave, nn.PixelShuffle(2))
