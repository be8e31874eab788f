"""The isolated dynamics as the paper writes them: explicit inverses, no branch, no factor."""

import torch

ACT = {
    "relu": lambda z: z.clamp(min=0),
    "square": lambda z: z**2,
    "tanh": lambda z: (z.exp() - (-z).exp()) / (z.exp() + (-z).exp()),
    "gelu": lambda z: z * 0.5 * (1 + torch.erf(z / 2**0.5)),
}
"""Each by its definition."""

SLOPE = {
    "relu": lambda z: torch.where(z > 0, 1.0, 0.0).to(z.dtype),
    "square": lambda z: z + z,
    "tanh": lambda z: 4 / (z.exp() + (-z).exp()) ** 2,
    "gelu": lambda z: (
        0.5 * (1 + torch.erf(z / 2**0.5)) + z * (-z * z / 2).exp() / (2 * torch.pi) ** 0.5
    ),
}


def half_gradient(W1, X, Y, *, lam, activation):
    """W1 - X^T[(A Y Y^T A H) o act'(X W1)], A = (H H^T + lam I)^-1; equation 20 at lam = 0."""
    H = ACT[activation](X @ W1)
    A = torch.linalg.inv(H @ H.T + lam * torch.eye(len(X), dtype=X.dtype))
    return W1 - X.T @ ((A @ Y @ Y.T @ A @ H) * SLOPE[activation](X @ W1))


def second_layer(W1, X, Y, *, lam, activation):
    """W2* = (H^T H + lam I)^-1 H^T Y, lam > 0."""
    H = ACT[activation](X @ W1)
    return torch.linalg.inv(H.T @ H + lam * torch.eye(H.shape[1], dtype=X.dtype)) @ H.T @ Y


def penalised_loss(W1, W2, X, Y, *, lam, activation):
    """L_lam(W1, W2), entry by entry."""
    total = 0.0
    for x, y in zip(X, Y, strict=True):
        hidden = ACT[activation](x @ W1)
        for c in range(len(y)):
            total = total + (sum(hidden[b] * W2[b, c] for b in range(len(hidden))) - y[c]) ** 2
    return total + lam * sum(w**2 for W in (W1, W2) for w in W.flatten())


def differentiable_cost(W1, X, Y, *, lam, activation):
    """R(W1) through torch's solver, for autograd."""
    H = ACT[activation](X @ W1)
    if H.shape[1] >= H.shape[0]:
        K = H @ H.T + lam * torch.eye(len(X), dtype=X.dtype)
        W2 = H.T @ torch.linalg.solve(K, Y)
    else:
        P = H.T @ H + lam * torch.eye(H.shape[1], dtype=X.dtype)
        W2 = torch.linalg.solve(P, H.T @ Y)
    return (H @ W2 - Y).square().sum() + lam * (W1.square().sum() + W2.square().sum())


def euler_path(W1, X, Y, *, lam, activation, eta, steps):
    """E <- E - eta (half gradient), the paper's simulation; every point."""
    path = [W1]
    for _ in range(steps):
        path.append(path[-1] - eta * half_gradient(path[-1], X, Y, lam=lam, activation=activation))
    return path
