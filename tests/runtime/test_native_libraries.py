"""Libraries that the native host opens: what each one registers, and why one is refused. Their code is the wheel's."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import numpy
import pytest
import torch

from etdev.errors import MissingRequirementError
from etdev.execution.native import open_native
from etdev.plugins import NATIVE_LIBRARIES
from etdev.runtime.native import NativeRuntime, find_toolchain
from etdev.runtime.native.toolchain import Toolchain
from etdev.runtime.native_libraries import needed_libraries
from support.files import chain
from support.native import native_host, saved
from support.plugins import Packages


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """A folder with copies of the wheel's libraries: as other files, they register everything again."""
    native_host()
    tools = find_toolchain()
    if not isinstance(tools, Toolchain):
        pytest.skip("the wheel's libraries are not there")
    for name in ("backend_openvino", "kernels_quantized"):
        shutil.copy(tools.package / "lib" / f"libexecutorch_{name}.so", tmp_path)
    shutil.copy(tools.package / "lib" / "libexecutorch_etdump.so", tmp_path)
    return tmp_path


def refusal(library: Path) -> MissingRequirementError:
    with NativeRuntime(native_host(), libraries=[library]) as native:
        for _ in range(2):  # A process without the library answers no request, not even the second time.
            with pytest.raises(MissingRequirementError, match=f"cannot use {re.escape(library.name)}: ") as caught:
                assert native.backends
    assert caught.value.where == os.fspath(library)
    assert "find_package(executorch)" in (caught.value.hint or "")
    return caught.value


def test_a_backend_that_exists(copied: Path) -> None:
    found = refusal(copied / "libexecutorch_backend_openvino.so")
    assert found.message.endswith("it registers the backend OpenvinoBackend, which the runtime already has")


def test_a_kernel_that_exists(copied: Path) -> None:
    """ExecuTorch ends the process. Its log says which kernel that was."""
    found = refusal(copied / "libexecutorch_kernels_quantized.so")
    assert "SIGABRT" in found.message
    assert "Re-registering quantized_decomposed::" in found.message


def test_a_library_that_registers_nothing(copied: Path) -> None:
    found = refusal(copied / "libexecutorch_etdump.so")
    assert found.message.endswith("it registers neither a backend nor a kernel")


def test_a_library_that_is_none(tmp_path: Path) -> None:
    native_host()
    library = tmp_path / "lib.so"
    library.write_bytes(b"not a library")
    assert f"it cannot be opened: {library}: " in refusal(library).message


def test_a_symbol_that_the_runtime_lacks() -> None:
    """As in a library that was compiled for another ExecuTorch."""
    (library,) = Path(numpy.__file__).parent.glob("_core/_multiarray_umath*.so")
    native_host()
    assert "undefined symbol: Py" in refusal(library).message


def test_libraries_that_are_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = tmp_path / "lib.so"
    library.touch()
    (tmp_path / "link.so").symlink_to(library)
    assert needed_libraries(["XnnpackBackend"], [library, tmp_path / "link.so"]) == (library,)
    packages = Packages(tmp_path / "site", NATIVE_LIBRARIES.name, monkeypatch)
    packages.install("mine", "Mine", f"def path():\n    return {str(library)!r}\n", "path")
    assert needed_libraries(["Mine"]) == (library,)
    assert needed_libraries(["Mine"], [library]) == (library,)
    assert needed_libraries(["Other"]) == ()


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("def path():\n    return '/none/lib.so'\n", "there is no such native library"),
        ("def path():\n    return '/'\n", "this native library is not a file"),
        ("def path():\n    return 3\n", "the native library 'Mine' of 'mine' failed: TypeError"),
        ("def path():\n    raise OSError('no disk')\n", "the native library 'Mine' of 'mine' failed: OSError: no disk"),
        ("path = 'lib.so'\n", "is not a native library: it lacks __call__"),
    ],
)
def test_a_package_that_has_no_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, said: str) -> None:
    Packages(tmp_path, NATIVE_LIBRARIES.name, monkeypatch).install("mine", "Mine", source, "path")
    with pytest.raises(MissingRequirementError, match=said) as caught:
        needed_libraries(["Mine"])
    assert caught.value.hint


def test_a_package_cannot_replace_a_backend_of_the_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packages = Packages(tmp_path, NATIVE_LIBRARIES.name, monkeypatch)
    packages.install("mine", "XnnpackBackend", "raise OSError\n", "path")
    with pytest.raises(MissingRequirementError, match="'XnnpackBackend', which is a built-in name"):
        needed_libraries(["XnnpackBackend"])


def test_a_program_without_delegates_needs_no_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    native_host()
    Packages(tmp_path, NATIVE_LIBRARIES.name, monkeypatch).install("mine", "Mine", "raise OSError\n", "path")
    with open_native(chain(1)) as native:
        native.load(saved(chain(1), tmp_path))
        torch.testing.assert_close(native.call("forward", (torch.ones(4),)), (torch.ones(4).sin(),))


def test_the_backends_of_the_host_are_built_in() -> None:
    with NativeRuntime(native_host()) as native:
        assert native.backends == {*NATIVE_LIBRARIES.built_in}
