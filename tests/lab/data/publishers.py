"""Small made-up datasets, written byte for byte as the publishers write theirs."""

import gzip
import hashlib
import io
import pickle
import struct
import tarfile
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import numpy as np
from PIL import Image

from sfao.lab.data.arrays import Arrays
from sfao.lab.data.cifar import CIFAR10_FORMAT
from sfao.lab.data.description import KnownFile
from sfao.lab.data.sets import DATASETS


def random_arrays(shape, classes, train=20, test=10, seed=0):
    random = np.random.default_rng(seed)
    return Arrays(
        random.integers(0, 256, (train, *shape), np.uint8),
        np.arange(train) % classes,
        random.integers(0, 256, (test, *shape), np.uint8),
        np.arange(test)[::-1] % classes,
    )


def digits(**sizes):
    return random_arrays((1, 28, 28), 10, **sizes)


def pictures(kind, **sizes):
    return random_arrays((3, 32, 32), kind.classes, **sizes)


def assert_same(found, expected):
    for (name, left), (_, right) in zip(found.items(), expected.items(), strict=True):
        assert left.dtype == right.dtype, name
        np.testing.assert_array_equal(left, right, name)


# MNIST


def idx_images(images):
    return struct.pack(">4I", 0x803, len(images), 28, 28) + images.tobytes()


def idx_labels(labels):
    return struct.pack(">2I", 0x801, len(labels)) + labels.astype(np.uint8).tobytes()


def mnist_files(arrays):
    return {
        "train-images-idx3-ubyte": idx_images(arrays.train_images),
        "train-labels-idx1-ubyte": idx_labels(arrays.train_labels),
        "t10k-images-idx3-ubyte": idx_images(arrays.test_images),
        "t10k-labels-idx1-ubyte": idx_labels(arrays.test_labels),
    }


def write_mnist(folder, arrays, packed=True):
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in mnist_files(arrays).items():
        if packed:
            (folder / f"{name}.gz").write_bytes(gzip.compress(content))
        else:
            (folder / name).write_bytes(content)


# CIFAR


def cifar_batches(kind, arrays):
    """The batches by the stem of their file: training images dealt out in order, then the test images."""
    images = np.array_split(arrays.train_images, len(kind.train))
    labels = np.array_split(arrays.train_labels, len(kind.train))
    batches = dict(zip(kind.train, zip(images, labels, strict=True), strict=True))
    return {**batches, kind.test: (arrays.test_images, arrays.test_labels)}


def binary_batch(kind, images, labels):
    coarse = np.full((len(labels), kind.label_bytes - 1), 7, np.uint8)
    fine = labels[:, None].astype(np.uint8)
    return np.concatenate([coarse, fine, images.reshape(len(images), -1)], axis=1).tobytes()


def python_batch(kind, images, labels):
    """As a file of today would be: Python 3, an old protocol."""
    rows = images.reshape(len(images), -1)
    return pickle.dumps({b"data": rows, kind.labels: [int(label) for label in labels]}, protocol=2)


def python2_batch(kind, images, labels, fortran_order=False):
    """As the publisher's files are: Python 2 strings, an array of NumPy's first years."""
    rows = images.reshape(len(images), -1)
    items = {
        "batch_label": _string(b"training batch 1 of 5"),
        kind.labels.decode(): b"](" + b"".join(b"K" + bytes([label]) for label in labels) + b"e",
        "data": _array(rows, fortran_order),
        "filenames": b"](" + b"".join(_string(b"leptodactylus_pentadactylus_s_000004.png") for _ in labels) + b"e",
    }
    return b"\x80\x02}(" + b"".join(_string(key.encode()) + value for key, value in items.items()) + b"u."


def _string(value):
    return b"U" + bytes([len(value)]) + value


def _array(rows, fortran_order):
    dtype = b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNN" + b"J\xff\xff\xff\xff" * 2 + b"K\x00tb"
    shape = b"".join(b"J" + struct.pack("<i", size) for size in rows.shape) + b"\x86"
    raw = rows.tobytes("F" if fortran_order else "C")
    return (
        b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R(K\x01"
        + shape
        + dtype
        + (b"\x88" if fortran_order else b"\x89")
        + b"T"
        + struct.pack("<i", len(raw))
        + raw
        + b"tb"
    )


def write_cifar_binary(root, kind, arrays):
    _write_batches(root / kind.binary_folder, ".bin", binary_batch, kind, arrays)


def write_cifar_python(root, kind, arrays, batch=python2_batch):
    _write_batches(root / kind.python_folder, "", batch, kind, arrays)


def _write_batches(folder, suffix, batch, kind, arrays):
    folder.mkdir(parents=True, exist_ok=True)
    for stem, (images, labels) in cifar_batches(kind, arrays).items():
        (folder / (stem + suffix)).write_bytes(batch(kind, images, labels))


# Tiny ImageNet


def write_tiny_imagenet(root, train=1, validation=200):
    """One flat colour an image, so that JPEG loses little: class number, split and place tell the colour."""
    folder = root / "tiny-imagenet-200"
    wnids = [f"n{9999 - number:08d}" for number in range(200)]  # not in the order of the alphabet
    (folder / "val" / "images").mkdir(parents=True)
    (folder / "wnids.txt").write_text("\n".join(wnids) + "\n")
    for number, wnid in enumerate(wnids):
        images = folder / "train" / wnid / "images"
        images.mkdir(parents=True)
        for place in range(train):
            flat_image((number, 40, 10 * place)).save(images / f"{wnid}_{place}.JPEG", quality=95)
    lines = []
    for place in range(validation):
        number = place * 7 % 200
        flat_image((number, 200, 0)).save(folder / "val" / "images" / f"val_{place}.JPEG", quality=95)
        lines.append(f"val_{place}.JPEG\t{wnids[number]}\t0\t0\t63\t63\n")
    (folder / "val" / "val_annotations.txt").write_text("".join(lines))
    return folder


def flat_image(colour, size=(64, 64)):
    return Image.new("RGB", size, colour)


# Publishing


def known(name, content):
    return KnownFile(name, len(content), f"sha256:{hashlib.sha256(content).hexdigest()}")


def small_mnist():
    """By name, the packed and the unpacked files."""
    unpacked = mnist_files(digits())
    return {f"{name}.gz": gzip.compress(content, mtime=0) for name, content in unpacked.items()}, unpacked


def small_cifar10():
    batches = cifar_batches(CIFAR10_FORMAT, pictures(CIFAR10_FORMAT))
    return {f"{stem}.bin": binary_batch(CIFAR10_FORMAT, *batch) for stem, batch in batches.items()}


def tgz(files):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def publish_mnist(monkeypatch, mirrors=()):
    packed, unpacked = small_mnist()
    files = {name: known(name, content) for name, content in {**packed, **unpacked}.items()}
    _publish(monkeypatch, "mnist", tuple(files.values()), tuple(files[name] for name in packed), mirrors)


def publish_cifar10(monkeypatch, mirrors, archive):
    files = tuple(known(name, content) for name, content in small_cifar10().items())
    _publish(monkeypatch, "cifar10", files, (known("cifar-10-binary.tar.gz", archive),), mirrors)


def _publish(monkeypatch, name, files, downloads, mirrors):
    published = replace(DATASETS[name], known_files=files, downloads=downloads, mirrors=tuple(mirrors))
    monkeypatch.setitem(DATASETS, name, published)


@dataclass
class Site:
    files: dict[str, bytes]
    url: str = ""
    requests: list[str] = field(default_factory=list)


@contextmanager
def serving(files=None):
    """Serve these files on this machine."""
    site = Site(files or {})

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            site.requests.append(self.path)
            content = site.files.get(self.path.removeprefix("/"))
            if content is None:
                self.send_error(404)
                return
            self.send_response(200)
            self.end_headers()  # no length: the connection tells the end
            self.wfile.write(content)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    site.url = f"http://127.0.0.1:{server.server_port}/"
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield site
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
