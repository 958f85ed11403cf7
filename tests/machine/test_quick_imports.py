"""Our modules are read in few steps, and like any others: in processes of their own, since what is
imported here is imported already."""

from __future__ import annotations

import compileall
import os
import py_compile
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from acphold.machine.quick_imports import MOST_BYTES
from tests.distributions import FOLDERS

SOURCES = [str(folder / "src") for folder in FOLDERS.values()]

QUICKLY = """
from acphold.machine.quick_imports import import_quickly
import_quickly()
"""

COUNTS = f"""
import sys
{QUICKLY}
calls = []
def note(frame, event, called):
    if event == "c_call" and called.__module__ == "posix":
        calls.append(called.__name__)
sys.setprofile(note)
from acphold import told
sys.setprofile(None)
print(told.told, *calls)
"""
"""Tells what the module says, and each system call for it."""

FEW = "stat stat open read close"


def python(code: str, *options: str, **env: str) -> str:
    """The output of a Python that runs the code, and finds our modules."""
    done = subprocess.run(
        [sys.executable, *options, "-c", code],
        env={"PYTHONPATH": os.pathsep.join(SOURCES)} | env,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package that begins with our name, with one module, whose bytecode says 1."""
    folder = tmp_path / "acphold"
    shutil.copytree(FOLDERS["acphold"] / "src" / "acphold" / "machine", folder / "machine")
    (folder / "__init__.py").touch()
    (folder / "told.py").write_text("told = 1")
    compileall.compile_dir(folder, quiet=1)
    return folder


def ask(folder: Path, *options: str, **env: str) -> tuple[int, bool]:
    """What the module of this package says, and whether it was read in few steps."""
    told, calls = python(COUNTS, *options, PYTHONPATH=str(folder.parent), **env).split(" ", 1)
    return int(told), calls.strip() == FEW


def test_a_module_costs_five_system_calls(package: Path) -> None:
    assert ask(package) == (1, True)


def test_a_module_and_a_package_are_as_python_makes_them() -> None:
    code = """
import acphold.faces.cli, acphold.faces.cli.front, importlib.resources, inspect, sys
for module in (acphold.faces.cli, acphold.faces.cli.front):
    spec = module.__spec__
    names = ("__name__", "__file__", "__package__", "__cached__", "__path__", "__doc__")
    print(*(getattr(module, name, None) for name in names), *vars(module))
    print(spec.origin, spec.cached, spec.parent, spec.submodule_search_locations, spec.has_location)
    print(spec.loader.is_package(module.__name__), len(inspect.getsource(module)))
    print(*(it.__code__.co_filename for it in vars(module).values() if inspect.isfunction(it)))
print(*sorted(file.name for file in importlib.resources.files("acphold.faces").iterdir()))
"""
    python(code)
    assert python(QUICKLY + code) == python(code)


def test_a_module_that_fails_has_the_traceback_that_python_gives(package: Path) -> None:
    (package / "told.py").write_text("1 / 0")
    compileall.compile_dir(package, quiet=1)
    code = """
import traceback
try:
    from acphold import told
except ZeroDivisionError:
    print(traceback.format_exc().partition('"<string>", ')[2].partition("\\n")[2])
"""
    found = python(QUICKLY + code, PYTHONPATH=str(package.parent))
    assert found == python(code, PYTHONPATH=str(package.parent))
    assert f'"{package}/told.py", line 1' in found
    assert "importlib" not in found


def test_a_changed_source_is_compiled_anew(package: Path) -> None:
    (package / "told.py").write_text("told = 22")
    assert ask(package) == (22, False)
    assert ask(package) == (22, True)


def test_where_no_bytecode_is_written_a_changed_source_is_read(package: Path) -> None:
    (package / "told.py").write_text("told = 22")
    assert ask(package, PYTHONDONTWRITEBYTECODE="1") == (22, False)
    assert ask(package, PYTHONDONTWRITEBYTECODE="1") == (22, False)


@pytest.mark.parametrize("harm", [b"", bytes(16), None])
def test_bytecode_that_is_no_good_is_made_anew(package: Path, harm: bytes | None) -> None:
    (compiled,) = (package / "__pycache__").glob("told.*")
    compiled.unlink() if harm is None else compiled.write_bytes(harm)
    assert ask(package) == (1, False)
    assert ask(package) == (1, True)


def test_bytecode_that_is_not_read_at_once_is_left_to_python(package: Path) -> None:
    (package / "told.py").write_text(f"told = len({'5' * MOST_BYTES!r})")
    compileall.compile_dir(package, quiet=1)
    assert ask(package) == (MOST_BYTES, False)


@pytest.mark.parametrize("mode", ["CHECKED_HASH", "UNCHECKED_HASH"])
def test_bytecode_that_is_known_by_a_digest_is_left_to_python(package: Path, mode: str) -> None:
    source = package / "told.py"
    py_compile.compile(str(source), invalidation_mode=py_compile.PycInvalidationMode[mode])
    assert ask(package) == (1, False)
    source.write_text("told = 2")
    assert ask(package) == (1 if mode == "UNCHECKED_HASH" else 2, False)


def test_bytecode_that_was_moved_tells_where_its_source_is_now(package: Path) -> None:
    moved = package.parent / "elsewhere" / "acphold"
    shutil.copytree(package, moved)
    code = f"""
{QUICKLY}
from acphold.machine import begun, place
print(begun.begin.__code__.co_filename, type(place.__loader__).__name__)
"""
    path = os.pathsep.join([str(moved.parent), *SOURCES])
    found = python(code, PYTHONPATH=path)  # the second one was not read twice
    assert found == f"{moved}/machine/begun.py SourceFileLoader\n"


def test_a_package_goes_before_a_module_of_its_name(package: Path) -> None:
    (package / "told").mkdir()
    (package / "told" / "__init__.py").write_text("told = 3")
    assert ask(package) == (3, False)
    compileall.compile_dir(package, quiet=1)
    assert ask(package)[0] == 3


def test_a_folder_without_a_source_is_a_namespace(package: Path) -> None:
    (package / "told.py").rename(package / "other.py")
    (package / "told").mkdir()
    (package / "told" / "told.py").write_text("told = 4")
    code = f"{QUICKLY}\nfrom acphold.told import told\nprint(told.told)"
    assert python(code, PYTHONPATH=str(package.parent)) == "4\n"


def test_a_zip_file_is_left_to_python(package: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        for file in package.rglob("*.py"):
            archive.write(file, file.relative_to(tmp_path))
    code = f"{QUICKLY}\nfrom acphold import told\nprint(told.__file__)"
    assert python(code, PYTHONPATH=f"{tmp_path}/all.zip") == f"{tmp_path}/all.zip/acphold/told.py\n"


def test_a_module_that_is_not_there_is_missed_as_usual(package: Path) -> None:
    code = """
try:
    import acphold.missing
except ModuleNotFoundError as exc:
    print(exc)
"""
    found = python(QUICKLY + code, PYTHONPATH=str(package.parent))
    assert found == "No module named 'acphold.missing'\n"


def test_without_the_usual_bytecode_python_looks_itself(package: Path, tmp_path: Path) -> None:
    assert ask(package, "-O") == (1, False)
    assert ask(package, PYTHONPYCACHEPREFIX=f"{tmp_path}/kept") == (1, False)
    assert (tmp_path / "kept").exists()


def test_a_finder_that_somebody_put_in_front_stays_in_front(package: Path) -> None:
    code = f"""
import sys
class Their:
    def find_spec(name, *_):
        print(name)
sys.meta_path.insert(0, Their)
{QUICKLY}
import acphold.told
"""
    assert "acphold.told\n" in python(code, PYTHONPATH=str(package.parent))
