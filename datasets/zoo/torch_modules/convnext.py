"""ConvNeXt: large depthwise convolutions, with layer normalisation over channels moved last."""

from __future__ import annotations

from torch import Tensor, nn

from routecast.datasets.zoo.torch_modules.layers import Residual, classifier, mlp


class ChannelsLast(nn.Module):
    """Applies ``body`` to images with their channels as the last axis."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, x: Tensor) -> Tensor:
        """Applies the body between two permutations."""
        y: Tensor = self.body(x.permute(0, 2, 3, 1))
        return y.permute(0, 3, 1, 2)


def _block(width: int) -> nn.Module:
    """Returns a residual block: 7x7 depthwise, then a two-layer perceptron on each pixel."""
    pixelwise = nn.Sequential(nn.LayerNorm(width), mlp(width, 4 * width, width, activation=nn.GELU))
    return Residual(nn.Sequential(nn.Conv2d(width, width, 7, padding=3, groups=width), ChannelsLast(pixelwise)))


class ConvNext(nn.Sequential):
    """Classifier of four stages, each at half the size and twice the width of the one before."""

    def __init__(self, width: int, repeats: tuple[int, ...] = (1, 1, 3, 1)) -> None:
        layers: list[nn.Module] = [nn.Conv2d(3, width, 4, 4), ChannelsLast(nn.LayerNorm(width))]
        for stage, count in enumerate(repeats):
            inputs = width << stage
            layers += [_block(inputs) for _ in range(count)]
            if stage < len(repeats) - 1:
                layers += [ChannelsLast(nn.LayerNorm(inputs)), nn.Conv2d(inputs, 2 * inputs, 2, 2)]
        super().__init__(*layers, classifier(width << (len(repeats) - 1)))
