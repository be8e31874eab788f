"""Tests of triplepoint.sweeps.needs."""

from triplepoint.models import config_of
from triplepoint.sweeps.needs import PROCESS_BYTES, need_of


def test_the_work_is_the_product_and_counts_an_image_s_patches():
    text = need_of(config_of("gpt2-0.1m", context=16), params=1000, steps=10, batch=4)
    assert text.work == 10 * 1000 * 4 * 16
    # 8 x 8 pixels in patches of 2 x 2, and the class token
    images = need_of(config_of("vit-0.1m"), params=1000, steps=10, batch=4)
    assert images.work == 10 * 1000 * 4 * 17


def test_memory_and_disk_are_floats_per_parameter_and_what_every_run_takes():
    config = config_of("gpt2-0.1m")
    one, two = (need_of(config, params=p, steps=10, batch=4) for p in (10**6, 2 * 10**6))
    assert two.memory - one.memory == 24 * 10**6
    assert two.disk - one.disk == 52 * 10**6
    assert one.memory > PROCESS_BYTES


def test_memory_grows_with_the_batch():
    small, large = (need_of(config_of("gpt2-10m"), params=1, steps=1, batch=b) for b in (8, 64))
    assert large.memory > 2 * small.memory
