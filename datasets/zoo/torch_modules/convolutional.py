"""Classifiers of plain, residual and densely connected convolutions."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from routecast.datasets.zoo.torch_modules.layers import Residual, classifier, conv


class Vgg(nn.Sequential):
    """Plain 3x3 convolutions with pooling between, and a head of two linear layers."""

    def __init__(self, width: int) -> None:
        layers: list[nn.Module] = []
        inputs = 3
        for outputs, repeats in ((width, 1), (2 * width, 1), (4 * width, 2), (8 * width, 2)):
            for _ in range(repeats):
                layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU()]
                inputs = outputs
            layers.append(nn.MaxPool2d(2))
        head = (
            nn.AdaptiveAvgPool2d(2),
            nn.Flatten(),
            nn.Linear(4 * inputs, 512),
            nn.ReLU(),
            nn.Linear(512, 100),
        )
        super().__init__(*layers, *head)


def _basic_block(inputs: int, outputs: int, stride: int) -> nn.Sequential:
    """Returns two 3x3 convolutions with a shortcut around them."""
    body = nn.Sequential(conv(inputs, outputs, 3, stride), conv(outputs, outputs, activation=None))
    same = inputs == outputs and stride == 1
    shortcut = None if same else conv(inputs, outputs, 1, stride, activation=None)
    return nn.Sequential(Residual(body, shortcut), nn.ReLU())


class ResNet(nn.Sequential):
    """Residual network of basic blocks."""

    def __init__(self, blocks: tuple[int, ...], width: int = 64) -> None:
        layers: list[nn.Module] = [conv(3, width, 7, 2), nn.MaxPool2d(3, 2, 1)]
        inputs = width
        for stage, repeats in enumerate(blocks):
            outputs = width << stage
            for block in range(repeats):
                layers.append(_basic_block(inputs, outputs, 2 if stage and not block else 1))
                inputs = outputs
        super().__init__(*layers, classifier(inputs))


class _DenseLayer(nn.Module):
    """Appends ``growth`` new channels to its input."""

    def __init__(self, inputs: int, growth: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.BatchNorm2d(inputs),
            nn.ReLU(),
            conv(inputs, 4 * growth, 1),
            nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False),
        )

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat((x, self.body(x)), 1)


class DenseNet(nn.Sequential):
    """Three blocks of densely connected layers with halving transitions between."""

    def __init__(self, growth: int, layers: int) -> None:
        width = 2 * growth
        steps: list[nn.Module] = [conv(3, width, 7, 2)]
        for _ in range(3):
            steps += [_DenseLayer(width + each * growth, growth) for each in range(layers)]
            grown = width + layers * growth
            width = grown // 2
            steps += [conv(grown, width, 1), nn.AvgPool2d(2)]
        super().__init__(*steps, classifier(width))
