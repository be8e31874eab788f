"""Tests of triplepoint.sweeps.decoders: which models of one's own can be trained on tokens."""

import pytest
import torch
from torch import nn

from triplepoint.errors import ModelError
from triplepoint.models import GPT2, config_of
from triplepoint.sweeps.decoders import refuse_no_decoder

TOKENS = torch.arange(16).view(2, 8)
REMEDY = "\nscreen and train need a decoder"


class Mixes(nn.Module):
    """Each output is the token's embedding and a share of the mean over all, or all before."""

    def __init__(self, *, causal):
        super().__init__()
        self.embed, self.head, self.causal = nn.Embedding(16, 4), nn.Linear(4, 16), causal

    def forward(self, tokens):
        x = self.embed(tokens)
        seen = torch.arange(1, x.shape[1] + 1)[:, None]
        mean = x.cumsum(1) / seen if self.causal else x.mean(1, keepdim=True)
        return self.head(x + mean)


@pytest.mark.parametrize(
    "build", [lambda: GPT2(config_of("gpt2-0.1m", context=8)), lambda: Mixes(causal=True)]
)
def test_a_decoder_passes_and_is_left_as_it_was(build):
    model = build()
    state = torch.get_rng_state()
    refuse_no_decoder(model, "mine:build", TOKENS)
    assert torch.equal(torch.get_rng_state(), state)
    assert model.training and all(p.grad is None for p in model.parameters())


@pytest.mark.parametrize(
    ("model", "problem"),
    [
        (
            Mixes(causal=False),
            "mine:build sees the tokens that it is to predict: an output changes",
        ),
        (nn.Linear(4, 4), "mine:build cannot be trained on tokens: Linear cannot be called on"),
        (nn.Bilinear(4, 4, 4), "cannot be trained on tokens: Bilinear cannot be called on"),
        (nn.Sequential(nn.Embedding(16, 4), nn.Flatten(1), nn.Linear(32, 2)), "has no axis of"),
    ],
    ids=["encoder", "no tokens", "two inputs", "one output"],
)
def test_what_is_no_decoder_is_refused(model, problem):
    with pytest.raises(ModelError, match=REMEDY) as refused:
        refuse_no_decoder(model, "mine:build", TOKENS)
    assert problem in str(refused.value)
