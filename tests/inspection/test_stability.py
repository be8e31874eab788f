"""Noise stability: linear maps worked by hand, tokens through their embedding."""

import pytest
import torch
from torch import nn

from triplepoint.errors import ModelError
from triplepoint.inspection.stability import noise_stability
from triplepoint.models import GPT2, GPT2Config


class Tokens(nn.Module):
    """Positions and tokens embedded, then one linear map."""

    def __init__(self, factor):
        super().__init__()
        self.positions = nn.Embedding(7, 4)
        self.words = nn.Embedding(11, 4)
        self.head = nn.Linear(4, 4)
        self.head.weight.data = factor * torch.eye(4)

    def forward(self, tokens):
        places = torch.arange(tokens.shape[1]).expand_as(tokens)
        return self.head(self.words(tokens) + self.positions(places))


@pytest.mark.parametrize("eps", [0.01, 0.1])
def test_a_rotation_and_a_factor_pass_noise_on_by_that_factor(eps):
    rotation, _ = torch.linalg.qr(torch.randn(6, 6))
    model = nn.Linear(6, 6)
    model.weight.data = 3 * rotation
    assert noise_stability(model, torch.randn(5, 6), eps=eps) == pytest.approx(3, rel=1e-4)


def test_a_map_that_keeps_one_of_four_directions_halves_noise():
    # E |Wg|^2 / E |g|^2 = ||W||_F^2 / 4 = 1/4: the root mean square singular value, not the largest
    model = nn.Linear(4, 4)
    model.weight.data = torch.diag(torch.tensor([1.0, 0, 0, 0]))
    assert noise_stability(model, torch.zeros(20_000, 4), eps=0.1) == pytest.approx(0.5, rel=0.01)


@pytest.mark.parametrize("form", ["windows", "pair", "mapping"])
def test_noise_goes_to_the_embedding_of_the_tokens_not_of_the_places(form):
    model = Tokens(2.0)
    tokens = torch.randint(11, (8, 8))
    batch = {
        "windows": tokens, "pair": (tokens[:, :-1], tokens[:, 1:]), "mapping": {"tokens": tokens[:, :-1]},
    }[form]  # fmt: skip
    assert noise_stability(model, batch, eps=0.1) == pytest.approx(2, rel=1e-4)
    assert "forward" not in model.words.__dict__


def test_the_same_seed_gives_the_same_number_and_the_model_is_left_alone():
    model = GPT2(GPT2Config(width=8, layers=1, heads=2, vocab=11, context=6, dropout=0.5))
    model.train()
    before = {n: p.clone() for n, p in model.named_parameters()}
    tokens = torch.randint(11, (4, 7))
    first = noise_stability(model, tokens, eps=0.01, seed=3)
    assert noise_stability(model, tokens, eps=0.01, seed=3) == first
    assert noise_stability(model, tokens, eps=0.01, seed=4) != first
    assert all(m.training for m in model.modules())
    assert all(torch.equal(p, before[n]) for n, p in model.named_parameters())


def test_a_narrow_model_is_measured_in_float32():
    model = nn.Linear(4, 4, bias=False, dtype=torch.bfloat16)
    model.weight.data = 2 * torch.eye(4, dtype=torch.bfloat16)
    # at eps 1e-4 around 1 a bfloat16 model would not move at all: its eps is 8e-3
    assert noise_stability(model, torch.ones(9, 4), eps=1e-4) == pytest.approx(2, rel=1e-2)
    assert model.weight.dtype == torch.bfloat16


def test_a_model_without_logits_or_embedding_is_refused():
    class Loss(nn.Module):
        def forward(self, x):
            return x.float().mean()

    class OneHot(nn.Module):
        def forward(self, x):
            return nn.functional.one_hot(x, 11).float()

    for model, text in [
        (
            Loss(),
            "Loss gives no logits, whose change noise_stability measures.\nLet the model return",
        ),
        (
            OneHot(),
            "No nn.Embedding of OneHot is called with the tokens of the batch.\nPass real-valued",
        ),
    ]:
        with pytest.raises(ModelError) as caught:
            noise_stability(model, torch.randint(11, (2, 3)), eps=0.1)
        assert str(caught.value).startswith(text)
