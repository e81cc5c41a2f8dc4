"""Convolutional autoencoder: down to a short code, and back by transposed convolutions."""

from __future__ import annotations

from torch import nn

from routecast.datasets.zoo.torch_modules.layers import conv


class Autoencoder(nn.Sequential):
    """Rebuilds images of 64x64 pixels from a code of 64 numbers."""

    def __init__(self, width: int) -> None:
        deep = 4 * width
        encoder = (conv(3, width, 5, 2), conv(width, 2 * width, 3, 2), conv(2 * width, deep, 3, 2))
        code = (
            nn.Flatten(),
            nn.Linear(64 * deep, 64),
            nn.Linear(64, 64 * deep),
            nn.Unflatten(1, (deep, 8, 8)),
        )
        decoder: list[nn.Module] = []
        for inputs, outputs in ((deep, 2 * width), (2 * width, width), (width, width)):
            decoder += [
                nn.ConvTranspose2d(inputs, outputs, 4, 2, 1),
                nn.BatchNorm2d(outputs),
                nn.LeakyReLU(0.1),
            ]
        super().__init__(*encoder, *code, *decoder, nn.Conv2d(width, 3, 3, padding=1), nn.Tanh())
