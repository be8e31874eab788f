"""Importing costs what it says, the layers import in one direction, and few parts touch the disk."""

import ast
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[1] / "src" / "triplepoint"

# Lowest first. A part imports from rows above its own, never from its own or below.
LAYERS = [
    {"errors"},
    {"extras"},
    {"records"},
    {"statistics"},
    {"runs"},
    {"recipes", "logbook"},
    {"ops", "metrics", "phases", "published", "weights", "report", "resources", "logs", "evidence"},
    {"families", "models", "data", "checkpoints", "timelines"},
    {"surgery", "capture", "grokking", "objectives", "optimisation", "observation"},
    {"blueprints", "training", "measurement", "inspection", "invariance", "calibration"},
    {"sweeps", "monitoring"},
    {"screening", "maps", "experiments"},
    {"integrations"},
    {"cli"},
]
HEIGHT = {part: row for row, parts in enumerate(LAYERS) for part in parts}

# Parts that may open files; ``published`` and ``report`` read their own package data.
OPENERS = {
    "records", "runs", "weights", "data", "report", "cli", "checkpoints", "resources", "published",
    "logs",
    "logbook",
}  # fmt: skip
OPENING = {
    "open", "safe_open", "fromfile", "memmap", "read_bytes", "read_table", "read_text", "save_file",
    "savez", "savez_compressed", "tofile", "write_bytes", "write_table", "write_text",
}  # fmt: skip
OPENING_OF = {("np", "load"), ("np", "save"), ("torch", "load"), ("torch", "save")}

WITHOUT_TORCH = [
    "triplepoint",
    "triplepoint.cli.main",
    "triplepoint.logs",
    "triplepoint.phases",
    "triplepoint.published",
    "triplepoint.recipes",
    "triplepoint.report",
    "triplepoint.runs",
    "triplepoint.statistics",
    "triplepoint.timelines",
]


def sources():
    """(part, file) of every file of the library but its top."""
    for path in sorted(ROOT.rglob("*.py")):
        part = path.relative_to(ROOT).parts[0].removesuffix(".py")
        if part != "__init__":
            yield part, path


def printed_by(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout


def test_importing_does_not_pay_for_torch():
    code = (
        "import importlib, sys\n"
        f"for entry in {WITHOUT_TORCH}:\n"
        "    importlib.import_module(entry)\n"
        "    if 'torch' in sys.modules: sys.exit(print(entry))\n"
    )
    assert printed_by(code) == ""


def test_printing_the_help_does_not_pay_for_torch():
    code = (
        "import sys; from triplepoint.cli.main import run; sys.argv = ['triplepoint', '--help']\n"
        "try: run()\n"
        "finally: print('torch' in sys.modules)"
    )
    printed = printed_by(code)
    assert "screen" in printed
    assert printed.split()[-1] == "False"


def test_public_names_are_what_their_module_calls_them():
    import triplepoint

    for name in triplepoint.__all__:
        assert getattr(triplepoint, name) is not None
    assert set(triplepoint.__all__) <= set(dir(triplepoint))


def test_an_unknown_public_name_is_an_attribute_error():
    import triplepoint

    with pytest.raises(AttributeError, match="^module 'triplepoint' has no attribute 'swap_norm'$"):
        triplepoint.swap_norm  # noqa: B018


def imported_parts(path):
    """The parts of triplepoint that a file imports, at its top or inside a function."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module == "triplepoint":
            names = [f"triplepoint.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        else:
            continue
        yield from (n.split(".")[1] for n in names if n.startswith("triplepoint."))


def test_every_part_has_its_place_in_the_table():
    assert sorted({part for part, _ in sources()} - set(HEIGHT)) == []


def test_imports_point_down_the_layers():
    wrong = [
        f"{path.relative_to(ROOT)} imports {target}"
        for part, path in sources()
        for target in imported_parts(path)
        if target != part and HEIGHT.get(target, 99) >= HEIGHT.get(part, -1)
    ]
    assert wrong == []


def test_no_import_is_relative():
    wrong = [
        f"{path.relative_to(ROOT)}, line {node.lineno}"
        for _, path in sources()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and node.level
    ]
    assert wrong == []


def opening_calls(path):
    """Lines on which a file is opened."""
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Call):
            continue
        called = node.func
        name = called.id if isinstance(called, ast.Name) else getattr(called, "attr", None)
        owner = getattr(getattr(called, "value", None), "id", None)
        if name in OPENING or (owner, name) in OPENING_OF:
            yield node.lineno


def test_only_these_parts_open_files():
    wrong = [
        f"{path.relative_to(ROOT)}, line {line}"
        for part, path in sources()
        if part not in OPENERS
        for line in opening_calls(path)
    ]
    assert wrong == []


def test_only_capture_registers_forward_hooks():
    wrong = [
        str(path.relative_to(ROOT))
        for part, path in sources()
        if part != "capture" and "register_forward" in path.read_text()
    ]
    assert wrong == []
