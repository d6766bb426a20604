"""Letters that the font of the figures lacks: a page shows them in a font of its own, a PDF cannot."""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.text import Text

from sfao.lab.report.figures.drawing import Drawing

#: Letters that are listed; more are counted.
MOST_LETTERS = 10


@contextmanager
def quiet_about_letters() -> Iterator[None]:
    """Leave out matplotlib's warning for every such letter; `note_missing_letters` tells of them once."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font", UserWarning)
        yield


def note_missing_letters(drawings: Sequence[Drawing]) -> str:
    """Return the notice that PDFs lack letters; empty when they lack none."""
    known = get_font(findfont(FontProperties())).get_charmap()
    texts = [text.get_text() for drawing in drawings for text in drawing.figure.findobj(Text) if isinstance(text, Text)]
    missing = sorted({letter for text in texts for letter in text if letter != "\n" and ord(letter) not in known})
    if not missing:
        return ""
    more = f" and {len(missing) - MOST_LETTERS} more" if len(missing) > MOST_LETTERS else ""
    return f"the figures as PDF lack {', '.join(missing[:MOST_LETTERS])}{more}: no font for them; the page shows them."
