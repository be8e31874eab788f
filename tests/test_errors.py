"""Tests of triplepoint.errors and triplepoint.extras."""

import pytest

from triplepoint import errors
from triplepoint.errors import MissingExtraError, TriplepointError, unknown_name
from triplepoint.extras import optional, require

ERRORS = {
    name: error
    for name, error in vars(errors).items()
    if isinstance(error, type) and issubclass(error, TriplepointError) and error is not TriplepointError
}  # fmt: skip


@pytest.mark.parametrize("error", ERRORS.values(), ids=ERRORS)
def test_every_error_is_ours_and_one_of_the_standard_librarys(error):
    ours, standard = error.__bases__
    assert issubclass(ours, TriplepointError)
    assert standard.__module__ == "builtins"
    assert str(error("what.\nremedy")) == "what.\nremedy"
    assert error.__name__.endswith("Error")


def test_an_unknown_name_suggests_the_nearest_whatever_its_case():
    error = unknown_name("size", "GPT2-3M", ["gpt2-0.4m", "gpt2-3m"])
    assert isinstance(error, LookupError)
    assert str(error).split("\n") == [
        "There is no size 'GPT2-3M'.",
        "Did you mean 'gpt2-3m'? Known: gpt2-0.4m, gpt2-3m.",
    ]


def test_an_unknown_name_far_from_all_suggests_none():
    assert str(unknown_name("op", "zzz", ["dyt"])) == "There is no op 'zzz'.\nKnown: dyt."


def test_a_missing_package_names_the_extra_that_installs_it():
    with pytest.raises(MissingExtraError) as caught:
        require("no_such_package", extra="hf")
    assert isinstance(caught.value, ImportError)
    assert str(caught.value).split("\n") == [
        "This needs the package 'no_such_package', which is not installed "
        "(No module named 'no_such_package').",
        "Install it with: pip install 'triplepoint[hf]'",
    ]


def test_a_package_that_is_there_is_imported():
    assert require("json.decoder", extra="hf").__name__ == "json.decoder"


def test_an_optional_package_that_is_not_there_is_no_error():
    assert optional("no_such_package.part") is None
    assert optional("json.decoder").__name__ == "json.decoder"
