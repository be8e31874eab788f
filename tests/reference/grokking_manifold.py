"""Tangent spaces of small nets, by the definitions: the whole Jacobian, its pseudo-inverse, sums in loops."""

import torch
from torch.func import functional_call


def theta_and_jacobian(model, inputs):
    """Return (theta [d], outputs [km], J [km, d]) of the trainable parameters in their order."""
    names = [n for n, p in model.named_parameters() if p.requires_grad]
    shapes = [model.get_parameter(n).shape for n in names]
    sizes = [s.numel() for s in shapes]
    theta = torch.cat([model.get_parameter(n).detach().reshape(-1) for n in names])

    def outputs(flat):
        parts = [p.view(s) for p, s in zip(flat.split(sizes), shapes, strict=True)]
        return functional_call(model, dict(zip(names, parts, strict=True)), (inputs,)).reshape(-1)

    theta.requires_grad_(True)
    out = outputs(theta)
    J = torch.stack([torch.autograd.grad(entry, theta, retain_graph=True)[0] for entry in out])
    return theta.detach(), out.detach(), J


def tangent_part(J, v):
    """(I - J^+ J) v with the SVD's pseudo-inverse."""
    return v - torch.linalg.pinv(J) @ (J @ v)


def two_layer_jacobian(X, W1, W2, gates, features):
    """J of act(X W1) W2 entry by entry; rows (sample, output), columns W1 then W2, row-major."""
    (n, d_in), (h, o) = X.shape, W2.shape
    J = torch.zeros(n * o, d_in * h + h * o, dtype=X.dtype)
    for i in range(n):
        for c in range(o):
            for b in range(h):
                for q in range(d_in):
                    J[i * o + c, q * h + b] = X[i, q] * gates[i, b] * W2[b, c]
                J[i * o + c, d_in * h + b * o + c] = features[i, b]
    return J


def stuck_rows(X, h, o, stuck):
    """One row X_i . v1[:, b] for each pair (i, b) of the list."""
    d_in = X.shape[1]
    S = torch.zeros(len(stuck), d_in * h + h * o, dtype=X.dtype)
    for row, (i, b) in enumerate(stuck):
        for q in range(d_in):
            S[row, q * h + b] = X[i, q]
    return S
