"""Files of recorded values."""

from __future__ import annotations

import zipfile
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.errors import InvalidRequestError


def read(path: str) -> dict[str, NDArray[Any]]:
    """The arrays of an .npz file by name.

    Raises:
        InvalidRequestError: not an .npz file, damaged, or with objects in it.
        OSError: the file cannot be read.
    """
    try:
        with open(path, "rb") as file:
            content = np.load(file, allow_pickle=False)
            if not isinstance(content, np.lib.npyio.NpzFile):
                raise InvalidRequestError(f"'{path}' is an .npy file, expected an .npz file with named arrays")
            return {name: content[name] for name in content.files}
    except (ValueError, EOFError, zipfile.BadZipFile, zlib.error) as exc:
        raise InvalidRequestError(f"'{path}' is damaged or not an .npz file: {exc}") from None
