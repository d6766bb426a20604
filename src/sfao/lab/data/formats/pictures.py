"""Opening pictures of a known size; those of another size are refused before a pixel is decoded."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from PIL import Image, UnidentifiedImageError

from sfao.lab.data.errors import DataError


@contextmanager
def open_picture(path: Path, kind: str, width: int, heights: range) -> Iterator[Image.Image]:
    """Open a JPEG or PNG file of this width and one of these heights; nothing is decoded yet."""
    try:
        with Image.open(path, formats=[kind]) as image:
            if image.width != width or image.height not in heights:
                most = heights[-1]
                raise DataError(f"{path}: must be {width} x {most} pixels, got {image.width} x {image.height}")
            yield image
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise DataError(f"{path}: must be {width} x {heights[-1]} pixels, got far more ({error})") from error
    except (UnidentifiedImageError, OSError, SyntaxError) as error:
        if isinstance(error, OSError) and error.errno is not None:  # of the disk, not of the decoder
            raise
        raise DataError(f"{path}: must be a whole {kind} file, got a truncated or damaged one ({error})") from error
