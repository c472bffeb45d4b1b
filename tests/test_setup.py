"""What a person meets who sets the project up: the run script's words, and what the wheel holds."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from mosaic_gpu.launcher import LIBRARY
from tests.support.stand_in import compiler

ROOT = Path(__file__).parent.parent
PACKAGES = {"mosaic_gpu": "mosaic_gpu", "dialect": "mosaic_gpu/dialect", "lowering": "mosaic_gpu/lowering"}
TOOLS = ("sh", "dirname", "cksum", "cat", "sed", "grep", "tail", "rm", "mkdir", "ln")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The files that setting up needs, in a folder of their own."""
    for name in ("run", "pyproject.toml", "README.md", "LICENSE", "CMakeLists.txt"):
        shutil.copy(ROOT / name, tmp_path / name)
    for name in PACKAGES:
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


@pytest.fixture
def bare_path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A PATH with the shell's tools and no Python."""
    folder = tmp_path_factory.mktemp("bin")
    for tool in TOOLS:
        (folder / tool).symlink_to(shutil.which(tool) or f"/bin/{tool}")
    return str(folder)


def run(checkout: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """`./run` with nothing in the environment but `environment`."""
    return subprocess.run(
        ["./run", *arguments], cwd=checkout, env=environment, capture_output=True, text=True, check=False, timeout=120
    )


def script(path: Path, text: str) -> str:
    """An executable shell script."""
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_without_arguments_the_script_tells_its_commands(checkout: Path, bare_path: str) -> None:
    result = run(checkout, PATH=bare_path, HOME=str(checkout))
    assert result.returncode == 0
    assert "./run demo" in result.stdout
    assert "./run test" in result.stdout


def test_an_unknown_command_fails(checkout: Path, bare_path: str) -> None:
    assert run(checkout, "tset", PATH=bare_path, HOME=str(checkout)).returncode == 2


def test_without_a_python_it_says_which_one_is_needed(checkout: Path, bare_path: str) -> None:
    result = run(checkout, "demo", PATH=bare_path, HOME=str(checkout))
    assert result.returncode == 1
    assert "error: no Python >= 3.12 found" in result.stderr
    assert not (checkout / ".venv").exists()


def test_a_python_that_is_too_old_is_passed_over(checkout: Path, bare_path: str) -> None:
    script(checkout / "python3", "exit 1")
    result = run(checkout, "demo", PATH=f"{checkout}:{bare_path}", HOME=str(checkout))
    assert "error: no Python >= 3.12 found" in result.stderr


def test_a_python_under_pyenv_is_found(checkout: Path, bare_path: str) -> None:
    binary = checkout / ".pyenv/versions/3.12.9/bin/python3"
    binary.parent.mkdir(parents=True)
    script(binary, '[ "$1" = -m ] && exit 1; exit 0')
    result = run(checkout, "demo", PATH=bare_path, HOME=str(checkout))
    assert str(binary) in result.stderr


def test_without_the_venv_module_it_names_the_package(checkout: Path, bare_path: str) -> None:
    python = script(checkout / "no-venv", f'[ "$2" = venv ] && exit 1; exec "{sys.executable}" "$@"')
    result = run(checkout, "demo", PATH=bare_path, HOME=str(checkout), PYTHON=python)
    assert result.returncode == 1
    assert "python3-venv" in result.stderr
    assert not (checkout / ".venv").exists()


def test_without_a_network_it_says_so(checkout: Path, bare_path: str) -> None:
    offline = {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_CONFIG_FILE": os.devnull, "PIP_RETRIES": "0"}
    result = run(checkout, "demo", PATH=bare_path, HOME=str(checkout), PYTHON=sys.executable, **offline)
    assert result.returncode == 1
    assert "the package index cannot be reached" in result.stderr


def build_wheel(checkout: Path, path: str, **environment: str) -> Path:
    """The wheel of a checkout, built with the tools on `path`."""
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", "out", "."]
    variables = {**os.environ, "PATH": path, **environment}
    subprocess.run(command, cwd=checkout, check=True, capture_output=True, env=variables)
    (wheel,) = (checkout / "out").glob("*.whl")
    return wheel


def test_the_wheel_holds_every_module_under_its_import_name(checkout: Path) -> None:
    wheel = build_wheel(checkout, os.environ.get("PATH", ""))
    names = {n for n in zipfile.ZipFile(wheel).namelist() if n.startswith("mosaic_gpu/")}
    sources = {
        f"{package}/{file.relative_to(checkout / folder)}"
        for folder, package in PACKAGES.items()
        for file in (checkout / folder).rglob("*.py")
    }
    assert sources | {"mosaic_gpu/py.typed"} <= names
    assert all(name.endswith((".py", "py.typed", ".cc", ".h", LIBRARY)) for name in names)


def test_the_wheel_holds_the_launcher_where_it_can_be_built(checkout: Path) -> None:
    if shutil.which("cmake") is None or compiler() is None:
        pytest.skip("no CMake or no C++ compiler")
    wheel = build_wheel(checkout, os.environ.get("PATH", ""))
    assert f"mosaic_gpu/native/{LIBRARY}" in zipfile.ZipFile(wheel).namelist()
    assert "-py3-none-linux_" in wheel.name


def test_without_cmake_the_wheel_holds_all_but_the_launcher(checkout: Path, bare_path: str) -> None:
    wheel = build_wheel(checkout, bare_path)
    names = zipfile.ZipFile(wheel).namelist()
    assert f"mosaic_gpu/native/{LIBRARY}" not in names
    assert "mosaic_gpu/native/launcher.cc" in names
    assert wheel.name.endswith("-py3-none-any.whl")


def test_where_the_compiler_fails_the_package_is_installed_without_the_launcher(checkout: Path) -> None:
    if shutil.which("cmake") is None:
        pytest.skip("no CMake")
    broken = script(checkout / "c++", "exit 1")
    wheel = build_wheel(checkout, os.environ.get("PATH", ""), CXX=broken)
    assert f"mosaic_gpu/native/{LIBRARY}" not in zipfile.ZipFile(wheel).namelist()
