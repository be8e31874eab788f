"""Tests of the vision transformer and its named sizes."""

import pytest
import torch
from tests.reference import vit as twin
from torch import nn

from triplepoint.errors import DataError, PlanError
from triplepoint.families import find_norms
from triplepoint.models import SIZES, ViT, ViTConfig, config_of, model_of, parameter_counts
from triplepoint.objectives import Objective
from triplepoint.ops import OPS
from triplepoint.surgery import swap_norms, unswap_norms

SMALL = {"width": 8, "layers": 2, "heads": 2, "image": 6, "patch": 2, "channels": 3, "classes": 5}
VIT_SIZES = [size for size in SIZES if size.startswith("vit-")]


def built(**changes):
    return ViT(ViTConfig(**{**SMALL, **changes}))


def spread_out(model):
    """Larger weights than at birth, so that nothing is nearly linear."""
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.5)
    return model


def message_of(**changes):
    with pytest.raises(PlanError) as caught:
        ViTConfig(**{**SMALL, **changes})
    return str(caught.value).split("\n")


def test_agrees_with_its_twin():
    model = spread_out(built())
    images = torch.randn(2, 3, 6, 6)
    for image, found in zip(images, model(images), strict=True):
        expected = twin.logits(model.state_dict(), image.double().tolist(), model.config)
        torch.testing.assert_close(found, torch.tensor(expected), rtol=1e-4, atol=1e-4)


def test_every_patch_is_seen_and_told_apart_by_its_place():
    model, image = spread_out(built()), torch.randn(1, 3, 6, 6)
    logits = model(image)
    for y in (0, 2, 4):
        for x in (0, 2, 4):
            other = image.clone()
            other[..., y, x] += 1
            assert not torch.isclose(model(other), logits).all()
    swapped = torch.cat([image[..., 2:4], image[..., :2], image[..., 4:]], dim=-1)
    assert not torch.isclose(model(swapped), logits).all()


def test_images_of_a_batch_do_not_see_each_other():
    model, images = spread_out(built()), torch.randn(3, 3, 6, 6)
    torch.testing.assert_close(model(images)[1:2], model(images[1:2]))


def test_dropout_is_random_in_training_and_absent_in_eval():
    model, images = spread_out(built(dropout=0.3)), torch.randn(2, 3, 6, 6)
    assert not torch.equal(model(images), model(images))
    model.eval()
    assert torch.equal(model(images), model(images))


def test_labelled_images_are_a_batch_of_the_objective():
    model, objective = built(), Objective()
    batch = torch.randn(4, 3, 6, 6), torch.tensor([0, 1, 2, 3])
    expected = nn.functional.cross_entropy(model(batch[0]), batch[1])
    torch.testing.assert_close(objective.loss(model, batch), expected)
    assert objective.per_window(model, batch).shape == (4,)


def test_every_norm_is_found_with_role_and_depth():
    assert [(s.path, s.role, s.depth) for s in find_norms(built())] == [
        ("blocks.0.norm1", "pre_attn", 0),
        ("blocks.0.norm2", "pre_mlp", 0),
        ("blocks.1.norm1", "pre_attn", 1),
        ("blocks.1.norm2", "pre_mlp", 1),
        ("norm", "final", None),
    ]


@pytest.mark.parametrize("op", OPS)
def test_any_op_stands_at_every_site_and_can_be_taken_back(op):
    model, images = spread_out(built()), torch.randn(2, 3, 6, 6)
    before = model(images)
    assert len(swap_norms(model, op).swapped) == 5
    model(images).square().mean().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
    unswap_norms(model)
    assert torch.equal(model(images), before)


def test_weights_are_drawn_with_the_stated_deviations():
    model = built(width=128, layers=4, heads=4, image=24)
    for name, parameter in model.named_parameters():
        if name.startswith("patch_embed"):
            continue  # torch's own
        if parameter.ndim > 1:
            assert parameter.std().item() == pytest.approx(0.02, rel=0.2), name
        else:
            assert set(parameter.tolist()) == {0.0 if name.endswith("bias") else 1.0}, name


# --- sizes


@pytest.mark.parametrize("size", VIT_SIZES)
def test_parameters_follow_the_formula(size):
    config = config_of(size)
    d, patch = config.width, config.channels * config.patch**2
    block = 12 * d**2 + 13 * d
    tokens = (config.image // config.patch) ** 2 + 1
    # blocks, last norm, patch embedding, class token, head
    expected = config.layers * block + 2 * d + (patch + 1) * d + d + (d + 1) * config.classes
    with torch.device("meta"):
        counts = parameter_counts(model_of(config))
    assert counts["params_no_positions"] == expected
    assert counts["params_total"] == expected + tokens * d


def test_the_published_studys_size():
    with torch.device("meta"):
        total = parameter_counts(model_of(config_of("vit-4.8m")))["params_total"]
    assert total / 1e6 == pytest.approx(4.77, abs=0.005)


def test_the_small_sizes_have_the_shape_of_their_gpt2_namesakes():
    for size in ("0.1m", "0.4m", "0.8m", "3m", "10m"):
        ours, theirs = config_of(f"vit-{size}"), config_of(f"gpt2-{size}")
        for name in ("width", "layers", "heads"):
            assert getattr(ours, name) == getattr(theirs, name)


def test_sizes_ascend():
    with torch.device("meta"):
        totals = [parameter_counts(model_of(config_of(s)))["params_total"] for s in VIT_SIZES]
    assert totals == sorted(totals)


@pytest.mark.parametrize("changes", [{"vocab": 300}, {"context": 64}], ids=str)
def test_a_size_of_images_has_no_vocabulary_and_no_context(changes):
    with pytest.raises(PlanError) as caught:
        config_of("vit-0.1m", **changes)
    assert str(caught.value).split("\n") == [
        "vit-0.1m reads images: it has no vocabulary and no context.",
        "Leave them out, or choose a gpt2 or llama size.",
    ]


# --- what makes no sense


def test_patches_that_do_not_tile_the_image_are_refused():
    assert message_of(patch=4) == [
        "Patches of 4 do not tile an image of 6 pixels.",
        "Choose a divisor of 6 for patch.",
    ]


@pytest.mark.parametrize(
    "name", ["width", "layers", "heads", "image", "patch", "channels", "classes"]
)
def test_shapes_below_one_are_refused(name):
    assert message_of(**{name: 0})[0] == f"{name} must be at least 1, got 0."


@pytest.mark.parametrize("shape", [(2, 1, 6, 6), (2, 3, 8, 8)])
def test_images_of_another_shape_are_refused(shape):
    with pytest.raises(DataError) as caught:
        built()(torch.zeros(shape))
    assert str(caught.value).split("\n") == [
        f"The model takes images of shape [3, 6, 6], got {list(shape[1:])}.",
        "Build it with the images' own image= and channels=.",
    ]
