"""Bytes of files and folders: exact where they are few, an estimate of many that are looked at here and there."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcbench.results.stored_bytes import MOST_FILES, files_bytes, folder_bytes


def written(folder: Path, sizes: list[int]) -> list[Path]:
    paths = [folder / f"{number:05d}" for number in range(len(sizes))]
    for path, size in zip(paths, sizes, strict=True):
        path.write_bytes(bytes(size))
    return paths


def test_few_files_are_all_counted(tmp_path: Path) -> None:
    assert files_bytes(written(tmp_path, [3, 5, 0, 11])) == 19
    assert files_bytes([]) == 0


def test_many_files_are_estimated_from_all_over_the_set(tmp_path: Path) -> None:
    """Samples and labels in two blocks of names, as npy has them."""
    count = 2 * MOST_FILES
    paths = written(tmp_path, [10] * count + [2] * count)
    assert files_bytes(paths) == 12 * count


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        files_bytes([tmp_path / "none"])


def test_a_folder_counts_with_all_below(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    written(tmp_path, [7])
    written(tmp_path / "checkpoints", [100, 1])
    (tmp_path / "link").symlink_to(tmp_path / "checkpoints")
    assert folder_bytes(tmp_path) == 108
