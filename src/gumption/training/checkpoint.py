"""Checkpoints: any state tree as JSON and safetensors (no pickle), written so that a kill at any moment harms nothing.

A checkpoint is a folder `checkpoints/<step>` with `tree.json`, `arrays.safetensors` and `manifest.json` (sizes and
SHA-256). It is made under a temporary name, flushed to the disk and renamed into place; a reader takes the newest one
whose checksums hold. A folder that exists is never touched again, so writing the same step twice makes `<step>-1`.
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import shutil
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from gumption.types import StateTree

TREE, ARRAYS, MANIFEST = "tree.json", "arrays.safetensors", "manifest.json"
_TEMPORARY = ".writing-"
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_RESERVED = ("__array__", "__tensor__", "__float__")


def save_tree(folder: str | Path, tree: StateTree) -> None:
    """Write a state tree into `folder` (made if needed) and flush it to the disk.

    Args:
        folder: Gets `tree.json` and `arrays.safetensors`.
        tree: Nested dicts (string keys), lists and tuples of None, bool, int, float, str, numpy arrays and torch
            tensors. Tuples come back as lists, numpy scalars as Python ones.

    Raises:
        ValueError: something else is in the tree (says where).
        OSError: the disk is full or refuses.
    """
    folder = Path(folder)
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    text = json.dumps(_encode(tree, "tree", arrays), ensure_ascii=False, allow_nan=False)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / TREE).open("w", encoding="utf-8") as file:
        file.write(text)
    _save_arrays(folder / ARRAYS, arrays)
    for name in (TREE, ARRAYS):
        _flush(folder / name)


def load_tree(folder: str | Path) -> StateTree:
    """The inverse of `save_tree`; arrays are writable, tensors are on the CPU.

    Raises:
        ValueError: the folder holds no tree, or it cannot be read.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    folder = Path(folder)
    try:
        data = json.loads((folder / TREE).read_text(encoding="utf-8"))
        arrays = load_file(folder / ARRAYS)
        tree: StateTree = _decode(data, arrays)
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        raise ValueError(f"{folder} holds no readable state: {error}") from None
    return tree


def write_checkpoint(parent: str | Path, step: int, tree: StateTree, keep: int = 2) -> Path:
    """Write one checkpoint atomically, then delete all but the newest `keep`.

    Args:
        parent: Folder of all checkpoints (made if needed).
        step: Number in the name; more is newer.
        tree: See `save_tree`.
        keep: Checkpoints that stay, ≥ 1.

    Returns:
        The checkpoint's folder.

    Raises:
        ValueError: the tree holds something that cannot be saved.
        OSError: the disk is full (the message says how much is missing and what to do) or refuses. Older checkpoints
            are unharmed and nothing half-written is left.
    """
    parent = Path(parent)
    parent.mkdir(parents=True, exist_ok=True)
    for leftover in parent.glob(f"{_TEMPORARY}*"):  # of a process that was killed
        shutil.rmtree(leftover, ignore_errors=True)
    temporary = parent / f"{_TEMPORARY}{step}"
    try:
        save_tree(temporary, tree)
        _write_manifest(temporary)
        _flush(temporary)
        final = _free_name(parent, step)
        temporary.rename(final)
        _flush(parent)
    except BaseException as error:
        shutil.rmtree(temporary, ignore_errors=True)
        if isinstance(error, OSError) and error.errno in _FULL:
            free = shutil.disk_usage(parent).free // 2**20
            raise OSError(
                error.errno,
                f"no space for a checkpoint in {parent} ({free} MB free): free some, or lower "
                "training.keep_checkpoints; the older checkpoints are unharmed",
            ) from error
        raise
    for old in _newest_first(parent)[max(keep, 1) :]:
        _remove(old)
    return final


def latest_checkpoint(parent: str | Path) -> Path | None:
    """The newest checkpoint whose files are all there and match their checksums.

    Broken ones are skipped with a warning. `None` when there is none (or no such folder).
    """
    parent = Path(parent)
    if not parent.is_dir():
        return None
    for folder in _newest_first(parent):
        problem = check_checkpoint(folder)
        if problem is None:
            return folder
        warnings.warn(f"checkpoint {folder} is broken ({problem}); trying an older one", stacklevel=2)
    return None


def check_checkpoint(folder: str | Path) -> str | None:
    """What is wrong with a checkpoint; `None` when nothing is."""
    folder = Path(folder)
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        files = dict(manifest["files"])
    except (OSError, ValueError, KeyError, TypeError):
        return f"no readable {MANIFEST}"
    for name, (size, digest) in files.items():
        path = folder / name
        if not path.is_file():
            return f"{name} is missing"
        if path.stat().st_size != size:
            return f"{name} has {path.stat().st_size} bytes instead of {size}"
        if _digest(path) != digest:
            return f"{name} does not match its checksum"
    return None if set(files) == {TREE, ARRAYS} else f"{MANIFEST} lists {sorted(files)}"


# -- folders


def _order(folder: Path) -> tuple[int, int] | None:
    step, _, again = folder.name.partition("-")
    if not step.isdigit() or not (again or "0").isdigit() or not folder.is_dir():
        return None
    return int(step), int(again or 0)


def _newest_first(parent: Path) -> list[Path]:
    found = [(order, folder) for folder in parent.iterdir() if (order := _order(folder)) is not None]
    return [folder for _, folder in sorted(found, reverse=True)]


def _free_name(parent: Path, step: int) -> Path:
    taken = [order[1] for f in parent.iterdir() if (order := _order(f)) is not None and order[0] == step]
    return parent / (f"{step:08d}-{max(taken) + 1}" if taken else f"{step:08d}")


def _remove(folder: Path) -> None:
    """Rename first: a kill in the middle of the deletion must not leave half a checkpoint under a valid name."""
    doomed = folder.with_name(f"{_TEMPORARY}old-{folder.name}")
    folder.rename(doomed)
    shutil.rmtree(doomed, ignore_errors=True)


def _write_manifest(folder: Path) -> None:
    files = {name: [(folder / name).stat().st_size, _digest(folder / name)] for name in (TREE, ARRAYS)}
    with (folder / MANIFEST).open("w", encoding="utf-8") as file:
        json.dump({"files": files}, file)
    _flush(folder / MANIFEST)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _flush(path: Path) -> None:
    """Wait until a file or folder is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# -- trees


def _save_arrays(path: Path, arrays: dict[str, np.ndarray[Any, Any]]) -> None:
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    try:
        save_file(arrays, path)
    except SafetensorError as error:  # the library writes from Rust and hides the error number in its text
        text = str(error)
        code = next((c for c in _FULL if f"os error {c}" in text), errno.EIO)
        raise OSError(code, f"{path}: {text}") from None


def _encode(node: Any, where: str, arrays: dict[str, np.ndarray[Any, Any]]) -> Any:
    if isinstance(node, dict):
        for key in node:
            if not isinstance(key, str) or key in _RESERVED:
                raise ValueError(f"{where}: keys of a state tree are strings other than {_RESERVED}, got {key!r}")
        return {k: _encode(v, f"{where}.{k}", arrays) for k, v in node.items()}
    if isinstance(node, (list, tuple)):
        return [_encode(v, f"{where}[{i}]", arrays) for i, v in enumerate(node)]
    if isinstance(node, np.generic):
        node = node.item()
    if node is None or isinstance(node, (bool, int, str)):
        return node
    if isinstance(node, float):
        return node if math.isfinite(node) else {"__float__": repr(node)}
    if isinstance(node, np.ndarray):
        if node.dtype.kind not in "biuf":
            raise ValueError(f"{where}: arrays of a state tree hold numbers, not {node.dtype}")
        return {"__array__": _put(arrays, node)}
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(node, torch.Tensor):
        tensor = node.detach().cpu()
        if tensor.dtype == torch.bfloat16:
            return {"__tensor__": _put(arrays, tensor.contiguous().view(torch.int16).numpy()), "as": "bfloat16"}
        return {"__tensor__": _put(arrays, tensor.numpy())}
    raise ValueError(f"{where}: a state tree cannot hold {type(node).__name__}")


def _put(arrays: dict[str, np.ndarray[Any, Any]], array: np.ndarray[Any, Any]) -> str:
    name = f"a{len(arrays)}"
    arrays[name] = np.asarray(array, dtype=array.dtype.newbyteorder("="), order="C")
    return name


def _decode(node: Any, arrays: dict[str, np.ndarray[Any, Any]]) -> Any:
    if isinstance(node, list):
        return [_decode(v, arrays) for v in node]
    if not isinstance(node, dict):
        return node
    if "__float__" in node:
        return float(node["__float__"])
    if "__array__" in node:
        return arrays[node["__array__"]]
    if "__tensor__" in node:
        import torch

        tensor = torch.from_numpy(arrays[node["__tensor__"]])
        return tensor.view(torch.bfloat16) if node.get("as") == "bfloat16" else tensor
    return {k: _decode(v, arrays) for k, v in node.items()}
