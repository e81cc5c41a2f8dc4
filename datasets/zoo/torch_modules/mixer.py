"""MLP mixer: linear layers over patches and over channels in turn."""

from __future__ import annotations

from torch import Tensor, nn

from routecast.datasets.zoo.torch_modules.layers import Transposed, mlp, pre_norm


class Mixer(nn.Module):
    """Classifies an image cut into patches, without convolution or attention over them."""

    def __init__(self, width: int, depth: int, size: int, patch: int = 16) -> None:
        super().__init__()
        count = (size // patch) ** 2
        self.patches = nn.Sequential(nn.Conv2d(3, width, patch, patch), nn.Flatten(2))
        steps: list[nn.Module] = []
        for _ in range(depth):
            across = mlp(count, 2 * width, count, activation=nn.GELU)
            steps.append(pre_norm(width, Transposed(across)))
            steps.append(pre_norm(width, mlp(width, 4 * width, width, activation=nn.GELU)))
        self.blocks = nn.Sequential(*steps, nn.LayerNorm(width))
        self.head = nn.Linear(width, 100)

    def forward(self, image: Tensor) -> Tensor:
        """Returns the logits of each image."""
        tokens = self.blocks(self.patches(image).transpose(1, 2))
        logits: Tensor = self.head(tokens.mean(1))
        return logits
