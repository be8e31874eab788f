"""Tests of the tangent projection: triplepoint.grokking.manifold, linearisation, gram_solvers and structured."""

import math

import pytest
import torch
from tests.grokking.exact import det
from tests.reference import grokking_manifold as twin
from torch import nn

from triplepoint.errors import MetricInputError, ModelError, PlanError
from triplepoint.grokking.gram_solvers import (
    extreme_singular_values,
    solve_cg,
    solve_cholesky,
    solve_eigh,
)
from triplepoint.grokking.linearisation import stack
from triplepoint.grokking.manifold import project_tangent, tangent_projection
from triplepoint.grokking.structured import project_two_layer, two_layer_rows
from triplepoint.grokking.two_layer import ACTIVATIONS, as_module

X = det((6, 4), 0.37, 1.9, 0.53)
W1 = det((4, 12), 1.1, 0.45, 0.29)
W2 = 0.5 * det((12, 3), 0.8, 1.3, 0.17)
P_T_THETA = [
    0.77069685392352, 0.53558493463255, -0.11506473924137, -0.67838384270146, -0.87241662042592, -0.5544169000072,
    -0.04531894803328, 0.80335826308949, 1.02237544494321, 0.79702029401519, 0.20226650036086, -0.61068895324692,
    -0.04617893988297, -0.79227669815171, -0.51256433344048, 0.01551415214304, 0.71451207018878, 0.74601191006985,
    -0.04045264265657, -0.74785169714764, -0.81563061845505, -0.05471863404149, 0.76528901511528, 1.01370836302319,
    -0.77217908653221, -0.41795935401957, 0.54736235152602, 0.67954772983718, -0.27939556235079, -0.87364777195855,
    -0.08322112651098, 0.62469385007748, 0.46371214136169, -0.51601967175935, -0.73882788828527, 0.179511309842,
    -0.1512269300281, 0.90516849058211, 0.20511477669154, -0.89064265880721, -0.25742794614445, 0.92535795546976,
    0.16537973545877, -0.95899247928016, -0.0795831276829, 0.89792539458948, -0.12178488319691, -0.90321360186414,
    0.1935809438694, -0.19074608850934, 0.34965591173366, 0.60425718875356, -0.28411867889493, 0.13448786600903,
    0.07001290048118, 0.03325864054267, -0.04126938142093, -0.14369616925862, 0.34683414822155, -0.50616742213505,
    -0.24403334989503, 0.09824398842506, -0.00131633073137, 0.08890615129894, -0.3691428675975, 0.34168896205925,
    0.48652840241505, -0.46170343551844, 0.25586892626065, 0.33660654559877, -0.26256558364665, -0.23530950700429,
    0.02520950472209, 0.326790279828, -0.25580799212506, -0.23863374215138, 0.62414906504897, -0.1207790075658,
    -0.48931720758965, 0.15830646993394, 0.41394006597256, 0.35413668752862, -0.44278844787998, 0.19049857134663,
]  # fmt: skip
ROUTES = ["cg", "cholesky", "eigh"]


def by_layer(flat):
    """Tangent of ``as_module(W1, W2)``, in the paper's order: W1 row-major, then W2."""
    first, last = flat.split([W1.numel(), W2.numel()])
    return torch.cat([first.view(12, 4).T.reshape(-1), last.view(3, 12).T.reshape(-1)])


def mlp(*widths, act=nn.ReLU, bias=False):
    layers = []
    for a, b in zip(widths, widths[1:], strict=False):
        layers += [nn.Linear(a, b, bias=bias), act()]
    return nn.Sequential(*layers[:-1]).double()


class Transformer(nn.Module):
    """One block with LayerNorm, causal attention and an embedding: what J must get through."""

    def __init__(self, dim=8, heads=2, vocab=5):
        super().__init__()
        self.embed, self.norm = nn.Embedding(vocab, dim), nn.LayerNorm(dim)
        self.qkv, self.out, self.unembed = (
            nn.Linear(dim, 3 * dim),
            nn.Linear(dim, dim),
            nn.Linear(dim, vocab),
        )
        self.heads = heads
        self.double()

    def forward(self, tokens):
        x = self.embed(tokens)
        b, t, d = x.shape
        q, k, v = (
            part.view(b, t, self.heads, -1).transpose(1, 2)
            for part in self.qkv(self.norm(x)).chunk(3, -1)
        )
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.unembed(x + self.out(mixed.transpose(1, 2).reshape(b, t, d)))[:, -1]


NETS = {
    "two layers": (lambda: mlp(5, 24, 3), lambda: torch.randn(9, 5).double()),
    "two layers, tanh and biases": (
        lambda: mlp(5, 24, 3, act=nn.Tanh, bias=True),
        lambda: torch.randn(9, 5).double(),
    ),
    "three layers": (lambda: mlp(5, 12, 10, 3), lambda: torch.randn(9, 5).double()),
    "transformer": (Transformer, lambda: torch.cartesian_prod(*[torch.arange(5)] * 2)[:9]),
}


@pytest.mark.parametrize("route", ["auto", *ROUTES])
def test_drift_of_the_exact_problem(route):
    done = tangent_projection(as_module(W1, W2), X, route=route)
    assert by_layer(-done.tangent).tolist() == pytest.approx(P_T_THETA, abs=1e-10)
    assert done.share**2 == pytest.approx(0.801163945912339, abs=1e-10)
    assert (done.rows, done.residual < 1e-9) == (18, True)


def test_each_route_says_what_it_saw_of_j():
    cg, cholesky, eigh = (tangent_projection(as_module(W1, W2), X, route=r) for r in ROUTES)
    for seen in (cg.solution, eigh.solution):
        assert seen.sigma_max == pytest.approx(4.873869532754632, rel=1e-9)
        assert seen.sigma_min == pytest.approx(0.26189353993005693, rel=1e-9)
    assert cg.solution.iterations >= 18
    assert (cholesky.solution.rank, eigh.solution.rank, cg.solution.rank) == (18, 18, None)


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("net", NETS)
def test_agrees_with_the_whole_jacobian(net, route):
    build, draw = NETS[net]
    model, inputs = build(), draw()
    theta, _, J = twin.theta_and_jacobian(model, inputs)
    v = torch.randn_like(theta)
    expected = twin.tangent_part(J, v)
    done = tangent_projection(model, inputs, v, route=route)
    assert (done.tangent - expected).norm() <= 1e-8 * expected.norm()
    left = (J @ done.tangent).norm() / (J @ v).norm()
    assert done.residual == pytest.approx(left.item(), abs=1e-9)


@pytest.mark.parametrize("net", NETS)
def test_products_are_those_of_the_jacobian_and_nothing_is_changed(net):
    build, draw = NETS[net]
    model, inputs = build(), draw()
    before = {n: p.clone() for n, p in model.state_dict().items()}
    theta, outputs, J = twin.theta_and_jacobian(model, inputs)
    lin = stack(model, inputs).at()
    v, a = torch.randn_like(theta), torch.randn_like(outputs)
    torch.testing.assert_close(lin.outputs, outputs)
    torch.testing.assert_close(lin.jvp(v), J @ v)
    torch.testing.assert_close(lin.vjp(a), J.T @ a)
    torch.testing.assert_close(lin.jacobian(chunk=4), J)
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])


def test_projecting_twice_is_projecting_once_and_parts_are_orthogonal():
    model = as_module(W1, W2)
    v = torch.randn(84, dtype=torch.float64)
    once = tangent_projection(model, X, v)
    again = tangent_projection(model, X, once.tangent)
    torch.testing.assert_close(again.tangent, once.tangent, atol=1e-13, rtol=0)
    assert abs(once.tangent @ (v - once.tangent)) < 1e-12


def test_wide_pseudo_inverse_is_the_one_with_the_gram_matrix_of_rows():
    _, _, J = twin.theta_and_jacobian(as_module(W1, W2), X)
    r = torch.randn(18, dtype=torch.float64)
    a = solve_cholesky(J @ J.T, r).a
    torch.testing.assert_close(J.T @ a, torch.linalg.pinv(J) @ r, rtol=1e-10, atol=1e-12)
    # the form for a tall J would invert a matrix of rank 18 with 84 columns
    assert int(torch.linalg.matrix_rank(J.T @ J)) == 18


def test_frozen_parameters_do_not_move():
    model = mlp(4, 12, 2)
    model[0].weight.requires_grad_(False)
    lin = stack(model, X).at()
    assert lin.theta.numel() == 24
    torch.testing.assert_close(
        lin.jacobian()[0], torch.cat([model[1](model[0](X[0])), torch.zeros(12)]).double()
    )


def test_parameters_come_back_by_name():
    model = mlp(4, 12, 2)
    net = stack(model, X)
    found = net.split(2 * net.theta)
    assert list(found) == ["0.weight", "2.weight"]
    torch.testing.assert_close(found["2.weight"], 2 * model[2].weight.detach())


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_structured_gram_is_that_of_the_jacobian_by_loops(activation):
    act = ACTIVATIONS[activation]
    rows = two_layer_rows(X, W1, W2, activation=activation)
    Z = X @ W1
    slope = torch.func.vmap(torch.func.grad(act.value))(Z.reshape(-1)).view_as(Z)
    J = twin.two_layer_jacobian(X, W1, W2, slope, act.value(Z))
    torch.testing.assert_close(rows.gram(), J @ J.T, rtol=1e-10, atol=1e-10)
    v = torch.randn(84, dtype=torch.float64)
    V1, V2 = v[:48].view(4, 12), v[48:].view(12, 3)
    torch.testing.assert_close(rows.apply(V1, V2), J @ v)
    for route in ("cholesky", "eigh"):
        done = project_two_layer(rows, V1, V2, route=route)
        torch.testing.assert_close(done.flat(), twin.tangent_part(J, v), rtol=1e-10, atol=1e-10)


def test_repeated_sample_is_refused_by_cholesky_and_handled_by_the_others():
    twice = torch.cat([X, X[:1]])
    model = as_module(W1, W2)
    with pytest.raises(MetricInputError, match="singular to working precision.*\n.*route='eigh'"):
        tangent_projection(model, twice, route="cholesky")
    for route in ("cg", "eigh"):
        done = tangent_projection(model, twice, route=route)
        assert by_layer(-done.tangent).tolist() == pytest.approx(P_T_THETA, abs=1e-8)
    assert (done.rows, done.solution.rank) == (21, 18)


def test_a_pivot_of_the_size_of_rounding_is_refused_although_the_factor_exists():
    K = torch.tensor([[1.0, 1.0], [1.0, 1.0 + 2.0**-52]], dtype=torch.float64)
    assert torch.linalg.cholesky_ex(K).info == 0
    with pytest.raises(MetricInputError, match="singular to working precision"):
        solve_cholesky(K, torch.ones(2, dtype=torch.float64))


def test_auto_takes_the_structure_only_where_it_is_the_whole_story():
    plain = tangent_projection(as_module(W1, W2), X)
    biased = tangent_projection(mlp(4, 12, 3, bias=True), X)
    assert (plain.solution.iterations, biased.solution.iterations > 0) == (0, True)


def test_float32_warns_where_it_loses_the_answer_and_float64_does_not():
    model = nn.Linear(2, 1, bias=False)
    inputs = torch.tensor([[1.0, 0.0], [1.0, 1e-3]])
    with pytest.warns(RuntimeWarning, match="float32 the result may be wrong.*dtype=torch.float64"):
        tangent_projection(
            model, inputs, torch.ones(2), route="eigh", rtol=1e-9, dtype=torch.float32
        )
    done = tangent_projection(model, inputs, torch.ones(2), route="eigh", dtype=torch.float64)
    assert done.tangent.abs().max() < 1e-9


def test_float32_is_good_to_its_tolerance_on_a_well_conditioned_net():
    low = tangent_projection(as_module(W1, W2), X, route="cg", dtype=torch.float32)
    assert low.tangent.dtype == torch.float32
    assert by_layer(-low.tangent).tolist() == pytest.approx(P_T_THETA, abs=2e-4)


def test_conjugate_gradients_say_when_they_stopped_early():
    with pytest.warns(RuntimeWarning, match="after 3 products, 1e-10 was asked.*route='eigh'"):
        done = tangent_projection(as_module(W1, W2), X, route="cg", max_iterations=3)
    assert done.residual > 1e-3


def test_solvers_agree_on_a_known_matrix_and_zero_has_zero():
    K = torch.diag(torch.tensor([4.0, 1.0, 0.25], dtype=torch.float64))
    b = torch.tensor([4.0, 2.0, 1.0], dtype=torch.float64)
    for done in (solve_cg(lambda a: K @ a, b), solve_cholesky(K, b), solve_eigh(K, b)):
        assert done.a.tolist() == pytest.approx([1.0, 2.0, 4.0])
    assert solve_cg(lambda a: K @ a, 0 * b).a.tolist() == [0.0, 0.0, 0.0]
    assert solve_eigh(0 * K, b).rank == 0


def test_lanczos_finds_both_ends_of_the_spectrum():
    sigma = torch.linspace(0.1, 5.0, 40, dtype=torch.float64)
    Q, _ = torch.linalg.qr(torch.randn(40, 40, dtype=torch.float64))
    K = Q @ torch.diag(sigma**2) @ Q.T
    low, high = extreme_singular_values(lambda a: K @ a, torch.randn(40).double())
    assert (low, high) == pytest.approx((0.1, 5.0), rel=1e-6)
    few, _ = extreme_singular_values(lambda a: K @ a, torch.randn(40).double(), iterations=8)
    assert few > low  # an estimate from above


def random_net():
    return nn.Sequential(nn.Linear(4, 9), nn.Dropout(0.5))


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (
            lambda: tangent_projection(mlp(4, 1, 3), X),
            ModelError,
            "7 parameters cannot meet 18.*\n.*wider",
        ),
        (
            lambda: tangent_projection(mlp(4, 1, 3), X, route="cg"),
            ModelError,
            "7 parameters cannot meet 18",
        ),
        (lambda: tangent_projection(random_net(), X.float()), ModelError, r"model.eval\(\)"),
        (lambda: tangent_projection(nn.ReLU(), X), ModelError, "no trainable parameter"),
        (lambda: stack(nn.LSTM(4, 3), X), ModelError, "returns tuple.*\n.*Wrap it"),
        (
            lambda: tangent_projection(as_module(W1 * math.inf, W2), X),
            MetricInputError,
            "48 of 84 parameters",
        ),
        (
            lambda: tangent_projection(as_module(W1, W2), X / 0),
            MetricInputError,
            "outputs are not finite",
        ),
        (
            lambda: tangent_projection(as_module(W1, W2), X, torch.ones(3)),
            MetricInputError,
            "each of the 84 trainable",
        ),
        (
            lambda: tangent_projection(as_module(W1, W2), X, torch.ones(3), route="cg"),
            MetricInputError,
            "each of the 84 trainable",
        ),
        (lambda: tangent_projection(as_module(W1, W2), X, route="qr"), PlanError, "no route 'qr'"),
        (
            lambda: project_two_layer(two_layer_rows(X, W1, W2), W1, W2, route="cg"),
            PlanError,
            "no route 'cg'",
        ),
        (
            lambda: project_two_layer(two_layer_rows(X, W1, W2), W1.T, W2),
            MetricInputError,
            "those of the layers",
        ),
        (lambda: two_layer_rows(X, W1.T, W2), MetricInputError, "nn.Linear stores the transpose"),
        (
            lambda: two_layer_rows(X, W1, W2, gates=X),
            MetricInputError,
            "one entry per sample and hidden",
        ),
        (lambda: two_layer_rows(X, W1, W2 * math.nan), MetricInputError, "not finite"),
        (lambda: solve_cg(lambda a: a, torch.tensor([math.nan])), MetricInputError, "not finite"),
        (
            lambda: solve_cg(lambda a: a / 0, torch.ones(2)),
            MetricInputError,
            "product with the Jacobian",
        ),
        (lambda: solve_cg(lambda a: a, torch.ones(2), tol=0.0), PlanError, "e.g. tol=1e-10"),
        (
            lambda: solve_eigh(torch.ones(2, 3), torch.ones(2)),
            MetricInputError,
            "no finite square matrix",
        ),
        (
            lambda: project_tangent(stack(mlp(4, 12, 2), X).at(), torch.full((72,), math.nan)),
            MetricInputError,
            "each of the 72",
        ),
    ],
)
def test_bad_input_says_what_to_try(call, error, text):
    with pytest.raises(error, match=text):
        call()
