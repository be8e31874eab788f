"""Tests of triplepoint.calibration."""

import pytest
import torch
from torch import nn

from triplepoint.calibration import alpha_from
from triplepoint.errors import ModelError, PlanError
from triplepoint.models import GPT2, GPT2Config
from triplepoint.ops import Derf, DyT
from triplepoint.surgery import swap_norms


def gpt2(op="dyt"):
    model = GPT2(GPT2Config(width=16, layers=2, heads=2, vocab=11, context=8))
    swap_norms(model, op)
    return model


def tokens():
    return torch.randint(11, (16, 8))


def one_site(op="dyt", dim=4, norm=nn.LayerNorm):
    model = nn.Sequential(norm(dim))
    swap_norms(model, op)
    return model


@pytest.mark.parametrize("share", [0.25, 0.05, 0.01])
@pytest.mark.parametrize("op", ["dyt", "derf", "hardtanh_alpha"])
def test_the_stated_share_is_beyond_the_threshold_exactly(op, share):
    model, x = one_site(op, dim=50), torch.randn(40, 50)
    (found,) = alpha_from(model, x, share=share)
    assert found.share == pytest.approx(share, abs=1e-9)
    assert int((model[0].alpha * x).abs().gt(2).sum()) == int(share * 2000)
    assert found.alpha == model[0].alpha.item()
    assert found.path == "0"


def test_alpha_is_the_threshold_over_the_number_between_two_inputs():
    model, x = one_site(), torch.tensor([[1.0, -2.0, 6.0, -10.0]])
    # halfway between the second and the third largest size: (2 + 6) / 2 = 4
    assert alpha_from(model, x, share=0.5, threshold=3.0)[0].alpha == pytest.approx(3 / 4)


def test_every_op_is_set_on_what_the_earlier_ones_feed_it():
    model, seen = gpt2(), tokens()
    found = alpha_from(model, seen, share=0.1)
    assert [c.path for c in found] == ["h.0.ln_1", "h.0.ln_2", "h.1.ln_1", "h.1.ln_2", "ln_f"]
    # set as they are now, all shares hold at once: a second pass changes nothing
    alphas = [c.alpha for c in found]
    assert [c.alpha for c in alpha_from(model, seen, share=0.1)] == alphas
    assert all(c.share == pytest.approx(0.1, abs=1e-3) for c in found)


def test_an_op_that_runs_twice_is_set_on_both_inputs():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.LayerNorm(4)

        def forward(self, x, y):
            return self.norm(x) + self.norm(y)

    model = Twice()
    swap_norms(model, "dyt")
    x, y = torch.tensor([[1.0, 2, 3, 4]]), torch.tensor([[5.0, 6, 7, 8]])
    assert alpha_from(model, (x, y), share=0.25)[0].alpha == pytest.approx(2 / 6.5)
    assert alpha_from(model, {"x": x, "y": y}, share=0.25)[0].alpha == pytest.approx(2 / 6.5)


def test_a_gain_by_feature_is_the_least_squares_fit_to_the_norm():
    model, x = one_site(dim=6), torch.randn(64, 6)
    norm = nn.LayerNorm(6)
    with torch.no_grad():
        model[0].bias.fill_(0.3)
    (found,) = alpha_from(model, x, match_gain="feature")
    basis = torch.tanh(found.alpha * x).double()
    target = norm(x).double() - 0.3
    expected = [torch.linalg.lstsq(basis[:, j : j + 1], target[:, j]).solution for j in range(6)]
    torch.testing.assert_close(model[0].weight.double(), torch.cat(expected), rtol=1e-5, atol=1e-6)
    left = (model[0].weight.double() * basis - target).norm() / target.norm()
    assert found.gain_error == pytest.approx(left.item(), rel=1e-5)


def test_a_scalar_gain_keeps_the_shape_of_the_gain_and_fits_worse():
    one, other, x = one_site(dim=6), one_site(dim=6), torch.randn(64, 6)
    gain = torch.arange(1.0, 7.0)
    for model in (one, other):
        with torch.no_grad():
            model[0].weight.copy_(gain)
    by_scalar = alpha_from(one, x, match_gain="scalar")[0].gain_error
    by_feature = alpha_from(other, x, match_gain="feature")[0].gain_error
    ratios = one[0].weight / gain
    torch.testing.assert_close(ratios, ratios[:1].expand(6))
    assert by_feature < by_scalar < 1


def test_a_norm_that_the_op_can_equal_is_matched_to_rounding():
    """On inputs of two sizes +-a a norm gives +-1, and so does any odd function up to a gain."""
    x = torch.randn(32, 4).sign() * torch.tensor([1.0, 1.0, 1.0, 1.0])
    x[:, 2:] = -x[:, :2]  # each token has mean 0 and mean square 1
    model = one_site(norm=lambda d: nn.LayerNorm(d, eps=1e-9))
    # all sizes are equal, so no share can hold: ties are all in or all out
    (found,) = alpha_from(model, x, share=0.5, match_gain="feature")
    assert found.gain_error < 1e-6
    assert found.share in (0.0, 1.0)


def test_the_mode_the_gradients_and_the_hooks_are_left_alone():
    model, fired = gpt2(), []
    model.train()
    model.h[0].eval()
    model.h[0].ln_1.register_forward_hook(lambda *_: fired.append(1))
    alpha_from(model, tokens(), match_gain="feature")
    assert fired == [1]
    assert (model.training, model.h[0].training, model.h[1].training) == (True, False, True)
    assert all(p.grad is None for p in model.parameters())
    assert not any(m._forward_pre_hooks for m in model.modules())


def test_a_share_that_is_none_is_refused():
    for share in (0, 1, -0.1, 5):
        with pytest.raises(PlanError) as caught:
            alpha_from(one_site(), torch.randn(2, 4), share=share)
        assert str(caught.value).split("\n") == [
            f"share is a fraction between 0 and 1, got {share}.",
            "0.05 squashes one element in twenty beyond the threshold.",
        ]


@pytest.mark.parametrize(
    ("x", "said"), [(torch.randn(1, 4), "4 inputs, 4 of"), (torch.zeros(99, 4), "396 inputs, 0 of")]
)
def test_a_batch_that_says_nothing_is_refused(x, said):
    model = one_site()
    before = model[0].alpha.item()
    with pytest.raises(ModelError) as caught:
        alpha_from(model, x)
    problem, remedy = str(caught.value).split("\n")
    assert problem == f"0 saw {said} them not zero: too few to set its alpha by a share of 0.05."
    assert remedy == "Pass a larger batch, or set that site's alpha with SwapPolicy(alpha=...)."
    assert model[0].alpha.item() == before


def test_a_model_without_an_alpha_is_refused():
    with pytest.raises(ModelError, match="Sequential ran no op that has an alpha") as caught:
        alpha_from(nn.Sequential(nn.LayerNorm(4)), torch.randn(2, 4))
    assert str(caught.value).split("\n")[1].startswith("Swap its norms first")


def test_a_norm_without_a_gain_gets_an_alpha_only():
    model = one_site(norm=lambda d: nn.LayerNorm(d, elementwise_affine=False))
    found = alpha_from(model, torch.randn(30, 4), match_gain="feature")
    assert found[0].gain_error is None
    assert isinstance(model[0], DyT)


def test_a_bfloat16_alpha_is_reported_as_stored():
    model = one_site("derf").bfloat16()
    (found,) = alpha_from(model, torch.randn(100, 4).bfloat16(), share=0.1)
    assert isinstance(model[0], Derf)
    assert found.alpha == model[0].alpha.item()
    assert found.share == pytest.approx(0.1, abs=0.02)


def test_channels_first_is_calibrated_as_channels_last():
    class First(nn.Module):
        def __init__(self):
            super().__init__()
            self.eps = 1e-6
            self.weight, self.bias = nn.Parameter(torch.ones(6)), nn.Parameter(torch.zeros(6))

        def forward(self, x):
            mean = x.mean(1, keepdim=True)
            square = (x - mean).square().mean(1, keepdim=True)
            x = (x - mean) / torch.sqrt(square + self.eps)
            return self.weight[:, None, None] * x + self.bias[:, None, None]

    first, last, x = nn.Sequential(First()), one_site(dim=6), torch.randn(2, 6, 4, 4)
    swap_norms(first, "dyt")
    one = alpha_from(first, x, match_gain="feature")[0]
    other = alpha_from(last, x.movedim(1, -1), match_gain="feature")[0]
    assert (one.alpha, one.share) == (other.alpha, other.share)
    torch.testing.assert_close(first[0].weight, last[0].weight, rtol=1e-4, atol=1e-4)


def test_a_model_that_is_compiled_in_place_is_run_eagerly():
    model, x = one_site(), torch.randn(20, 4)
    expected = alpha_from(one_site(), x)
    model.compile(backend="eager")
    assert alpha_from(model, x) == expected
