"""Vision transformer: patches as tokens, a class token, learned positions, biases.

Axes: ``batch channel height width`` of images, ``batch token dim`` inside. A model of L layers has 2L+1 norm
sites. Modules are named as in timm.
"""

from __future__ import annotations

import dataclasses

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from triplepoint.errors import DataError, PlanError
from triplepoint.models._shapes import check_shape
from triplepoint.models.attention import join_heads, split_heads


@dataclasses.dataclass(frozen=True, kw_only=True)
class ViTConfig:
    """Shape of a vision transformer; by default for 8 x 8 grey images of ten classes, scikit-learn's digits.

    For CIFAR-10 as arXiv 2604.23434 ran it: ``image=32, patch=4, channels=3``.
    """

    width: int
    layers: int
    heads: int
    image: int = 8
    """Height and width of an image, pixels."""
    patch: int = 2
    """Height and width of a patch, pixels."""
    channels: int = 1
    classes: int = 10
    dropout: float = 0.0

    def __post_init__(self):
        check_shape(self, "width", "layers", "heads", "image", "patch", "channels", "classes")
        if self.image % self.patch:
            raise PlanError(
                f"Patches of {self.patch} do not tile an image of {self.image} pixels.\n"
                f"Choose a divisor of {self.image} for patch."
            )

    @property
    def tokens(self) -> int:
        """Number of patches, and one for the class."""
        return (self.image // self.patch) ** 2 + 1


class PatchEmbedding(nn.Module):
    """Cut an image into patches, in rows, and map each to a token."""

    def __init__(self, config: ViTConfig):
        super().__init__()
        self.proj = nn.Conv2d(config.channels, config.width, config.patch, stride=config.patch)

    def forward(
        self, images: Float[Tensor, "batch channel height width"]
    ) -> Float[Tensor, "batch token dim"]:
        """Return the patches' tokens."""
        return self.proj(images).flatten(2).transpose(1, 2)


class ViTAttention(nn.Module):
    """Self-attention in which every token sees every other."""

    def __init__(self, config: ViTConfig):
        super().__init__()
        self.heads, self.dropout = config.heads, config.dropout
        self.qkv = nn.Linear(config.width, 3 * config.width)
        self.proj = nn.Linear(config.width, config.width)
        self.proj_drop = nn.Dropout(config.dropout)

    def forward(self, x: Float[Tensor, "batch token dim"]) -> Float[Tensor, "batch token dim"]:
        """Mix tokens."""
        q, k, v = (split_heads(part, self.heads) for part in self.qkv(x).chunk(3, dim=-1))
        dropout = self.dropout if self.training else 0.0
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout)
        return self.proj_drop(self.proj(join_heads(y)))


class ViTMLP(nn.Module):
    """Two linear layers around an exact GELU, four times as wide inside."""

    def __init__(self, config: ViTConfig):
        super().__init__()
        self.fc1 = nn.Linear(config.width, 4 * config.width)
        self.fc2 = nn.Linear(4 * config.width, config.width)
        self.drop = nn.Dropout(config.dropout)

    def forward(self, x: Float[Tensor, "batch token dim"]) -> Float[Tensor, "batch token dim"]:
        """Transform each token by itself."""
        return self.drop(self.fc2(F.gelu(self.fc1(x))))


class ViTBlock(nn.Module):
    """Attention and MLP, each behind a norm and beside a residual."""

    def __init__(self, config: ViTConfig):
        super().__init__()
        self.norm1 = nn.LayerNorm(config.width)
        self.attn = ViTAttention(config)
        self.norm2 = nn.LayerNorm(config.width)
        self.mlp = ViTMLP(config)

    def forward(self, x: Float[Tensor, "batch token dim"]) -> Float[Tensor, "batch token dim"]:
        """Add attention, then MLP, to the residual stream."""
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class ViT(nn.Module):
    """A vision transformer that classifies images by their class token.

    Linear weights, positions and the class token are drawn from N(0, 0.02^2), biases are zero; the patch
    embedding is born as any ``nn.Conv2d``.

    Args:
        config: Shape of the model.

    References:
        Dosovitskiy et al. (2021), arXiv 2010.11929.

    Example:
        >>> model = ViT(ViTConfig(width=8, layers=1, heads=2))
        >>> model(torch.zeros(3, 1, 8, 8)).shape
        torch.Size([3, 10])
    """

    def __init__(self, config: ViTConfig):
        super().__init__()
        self.config = config
        self.patch_embed = PatchEmbedding(config)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, config.width))
        self.pos_embed = nn.Parameter(torch.zeros(1, config.tokens, config.width))
        self.pos_drop = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList(ViTBlock(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width)
        self.head = nn.Linear(config.width, config.classes)
        self._initialise()

    def _initialise(self) -> None:
        for parameter in (self.cls_token, self.pos_embed):
            nn.init.normal_(parameter, std=0.02)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=0.02)
                nn.init.zeros_(module.bias)

    def forward(
        self, images: Float[Tensor, "batch channel height width"]
    ) -> Float[Tensor, "batch class"]:
        """Return the logits of each image's class.

        Raises:
            DataError: If the images have another size or number of channels than the model.
        """
        config = self.config
        expected = (config.channels, config.image, config.image)
        if tuple(images.shape[1:]) != expected:
            raise DataError(
                f"The model takes images of shape {list(expected)}, got {list(images.shape[1:])}.\n"
                "Build it with the images' own image= and channels=."
            )
        patches = self.patch_embed(images)
        tokens = torch.cat([self.cls_token.expand(len(images), -1, -1), patches], dim=1)
        x = self.pos_drop(tokens + self.pos_embed)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)[:, 0])
