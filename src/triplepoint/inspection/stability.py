"""How far the logits move when noise is added to what the embedding gives."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn

from triplepoint.capture import Capture
from triplepoint.errors import ModelError
from triplepoint.objectives import Batch, first_tensor, forward, logits_of

DRAWS = 3
"""Draws of the noise that are averaged, as in arXiv 2604.23434."""


def noise_stability(
    model: nn.Module, batch: Batch, *, eps: float, draws: int = DRAWS, seed: int = 0
) -> float:
    r"""Return how much the logits move for noise of a given size, in float32.

    .. math:: L_\epsilon = \frac{\lVert f(x + \epsilon g) - f(x) \rVert_F}{\lVert \epsilon g \rVert_F},
              \qquad g \sim N(0, I)

    where x is what the token embedding gives (the input itself, where that is real-valued), averaged over
    ``draws``. Not a Lipschitz constant: that is the largest over all directions, this the size of a typical
    one. A model in a narrower dtype is copied to float32 first; dropout is off.

    Args:
        model: The model; left as it was.
        batch: Inputs, as :class:`triplepoint.objectives.Objective` takes them.
        eps: Standard deviation of the noise, in the units of the embedding.
        draws: How many draws to average.
        seed: Of the noise.

    Returns:
        The ratio, at least 0. 1 for the identity, the root mean square singular value for a linear map.

    Raises:
        ModelError: If the model gives no logits, or neither real inputs nor an embedding of its tokens.

    References:
        arXiv 2604.23434, "output Lipschitz": eps 0.01 and 0.1, three draws.

    Example:
        >>> double = nn.Linear(2, 2, bias=False)
        >>> double.weight.data = 2 * torch.eye(2)
        >>> round(noise_stability(double, torch.ones(5, 2), eps=0.1), 4)
        2.0
    """
    if any(p.is_floating_point() and p.dtype != torch.float32 for p in model.parameters()):
        model = copy.deepcopy(model).float()
    with _quiet(model), torch.no_grad():
        clean = _logits(model, batch)
        embedding = _embedding_of(model, batch)
        moved = [_moved(model, batch, embedding, clean, eps, seed + draw) for draw in range(draws)]
    return sum(moved) / draws


@contextlib.contextmanager
def _quiet(model: nn.Module) -> Iterator[None]:
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode


def _logits(model: nn.Module, batch: Batch) -> Tensor:
    logits = logits_of(forward(model, batch))
    if logits is None:
        raise ModelError(
            f"{type(model).__name__} gives no logits, whose change noise_stability measures.\n"
            "Let the model return a tensor, or an object with .logits."
        )
    return logits.float()


def _moved(
    model: nn.Module,
    batch: Batch,
    embedding: nn.Module | None,
    clean: Tensor,
    eps: float,
    seed: int,
) -> float:
    generator = torch.Generator().manual_seed(seed)
    size = torch.zeros((), dtype=torch.float64)

    def noisy(x: Tensor) -> Tensor:
        noise = eps * torch.randn(x.shape, generator=generator).to(x.device)
        size.add_(noise.double().square().sum().cpu())
        return x + noise

    if embedding is None:
        change = _logits(model, _with_first(batch, noisy(first_tensor(batch)))) - clean
    else:
        with _adding(embedding, noisy):
            change = _logits(model, batch) - clean
    return float(change.double().norm().cpu() / size.sqrt())


def _embedding_of(model: nn.Module, batch: Batch) -> nn.Module | None:
    """Return the embedding that is called with the tokens of the batch; None where the input is real-valued."""
    inputs = first_tensor(batch)
    if inputs.is_floating_point():
        return None
    found: list[nn.Module] = []

    def see(site: str, module: nn.Module, x: Tensor) -> None:
        # [batch, seq + 1] windows lose their last token on the way in
        given = inputs if x.shape == inputs.shape else inputs[:, : x.shape[-1]]
        if x.shape == given.shape and torch.equal(x, given):
            found.append(module)

    embeddings = {n: m for n, m in model.named_modules() if isinstance(m, nn.Embedding)}
    with Capture(embeddings, see):
        forward(model, batch)
    if not found:
        raise ModelError(
            f"No nn.Embedding of {type(model).__name__} is called with the tokens of the batch.\n"
            "Pass real-valued inputs, or leave noise_stability out with noise=()."
        )
    return found[0]


def _with_first(batch: Batch, x: Tensor) -> Batch:
    """Return the batch with its first tensor replaced."""
    if isinstance(batch, Tensor):
        return x
    old = first_tensor(batch)
    if isinstance(batch, Mapping):
        return {k: x if v is old else v for k, v in batch.items()}
    return tuple(x if v is old else v for v in batch)


@contextlib.contextmanager
def _adding(module: nn.Module, noisy: object) -> Iterator[None]:
    """Let a module return something noisier. Not a hook: those see values and leave them alone."""
    plain, own = module.forward, "forward" in module.__dict__
    module.forward = lambda *args, **options: noisy(plain(*args, **options))
    try:
        yield
    finally:
        if own:
            module.forward = plain
        else:
            del module.forward
