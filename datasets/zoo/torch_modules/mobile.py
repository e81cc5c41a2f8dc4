"""Classifiers for phones: inverted residuals of depthwise convolutions, with or without squeeze-excite."""

from __future__ import annotations

from torch import Tensor, nn

from routecast.datasets.zoo.torch_modules.layers import Activation, Residual, classifier, conv


class SqueezeExcite(nn.Module):
    """Scales channels by what their averages say."""

    def __init__(self, width: int, gate: Activation) -> None:
        super().__init__()
        hidden = max(8, width // 4)
        self.gate = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            nn.Conv2d(width, hidden, 1),
            nn.ReLU(),
            nn.Conv2d(hidden, width, 1),
            gate(),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Scales ``(batch, channels, height, width)`` channel by channel."""
        scaled: Tensor = x * self.gate(x)
        return scaled


def _inverted(inputs: int, outputs: int, stride: int, squeeze: bool, activation: Activation) -> nn.Module:
    """Returns an inverted residual: widen, filter each channel, narrow."""
    wide = 4 * inputs
    gate = nn.Hardsigmoid if activation is nn.Hardswish else nn.Sigmoid
    body = nn.Sequential(
        conv(inputs, wide, 1, activation=activation),
        conv(wide, wide, 5 if squeeze else 3, stride, groups=wide, activation=activation),
        SqueezeExcite(wide, gate) if squeeze else nn.Identity(),
        conv(wide, outputs, 1, activation=None),
    )
    return Residual(body) if stride == 1 and inputs == outputs else body


class MobileNet(nn.Sequential):
    """MobileNet 2 and 3 and EfficientNet, by activation (a class of ``torch.nn``) and squeeze-excite."""

    def __init__(self, width: int, repeats: int = 2, squeeze: bool = False, activation: str = "ReLU6") -> None:
        act: Activation = getattr(nn, activation)
        layers: list[nn.Module] = [conv(3, width, 3, 2, activation=act)]
        inputs = width
        for factor in (2, 3, 4, 6):
            for block in range(repeats):
                layers.append(_inverted(inputs, factor * width, 1 if block else 2, squeeze, act))
                inputs = factor * width
        super().__init__(*layers, conv(inputs, 4 * inputs, 1, activation=act), classifier(4 * inputs))
