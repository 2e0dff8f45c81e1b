"""The data of both models, from what every machine has: written once by the driver, read by every rank.

Digits come with scikit-learn; text is the source of Python's own library. Nothing is downloaded.
"""

from __future__ import annotations

import sysconfig
from pathlib import Path

import numpy as np

from dlcp.train.errors import TrainError

# All kinds of modules, and little enough to be read at once by every rank.
TEXT_BYTES_MAX = 6_000_000
TEXT_BYTES_MIN = 200_000


def prepare(model: str, folder: Path) -> Path:
    """Writes the array that `model` is trained on into `folder` and returns its path.

    Raises TrainError: a package or the library's sources are not there.
    """
    path = folder / f"{model}.npy"
    np.save(path, {"digits": digits, "language": library_text}[model]())
    return path


def digits() -> np.ndarray:
    """float32[1797, 65]: 64 pixels from 0 to 1, and the digit."""
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise TrainError(
            f"the digits come with scikit-learn ({error}); pip install '.[demo]' in a checkout of dlcp, "
            "or choose --model language"
        ) from error
    pixels, answers = load_digits(return_X_y=True)
    return np.column_stack([pixels / 16, answers]).astype(np.float32)


def library_text(folder: Path | None = None) -> np.ndarray:
    """uint8[bytes]: the modules of Python's library one after another, in an order that mixes its parts.

    `folder`: in place of the library's own.
    """
    folder = Path(sysconfig.get_path("stdlib")) if folder is None else folder
    files = sorted(folder.glob("*.py"))
    # By the name read backwards: what is kept out of the training is then a bit of everything, and the same each time.
    files.sort(key=lambda file: file.stem[::-1])
    text = b"\n\n".join(file.read_bytes() for file in files)[:TEXT_BYTES_MAX]
    if len(text) < TEXT_BYTES_MIN:
        raise TrainError(
            f"{folder} holds {len(text)} bytes of Python sources, and the language model needs {TEXT_BYTES_MIN}; "
            "use a Python that comes with its library as source, or choose --model digits"
        )
    return np.frombuffer(text, np.uint8)
