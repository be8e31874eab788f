"""Exact problems whose numbers can be written down: entries are sines of their indices."""

import torch


def det(shape, a, b, c):
    """[i, j] -> sin(a i + b j + c i j), indices from 1."""
    i = torch.arange(1, shape[0] + 1, dtype=torch.float64)[:, None]
    j = torch.arange(1, shape[1] + 1, dtype=torch.float64)[None]
    return torch.sin(a * i + b * j + c * i * j)


X = det((5, 4), 1.3, 0.7, 0.31)
W1 = det((4, 9), 0.9, 1.7, 0.23)
Y = det((5, 3), 0.5, 1.1, 0.77)
