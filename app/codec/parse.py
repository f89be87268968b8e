"""A body and its Content-Type -> Message: the table of what POST /infer takes."""

from __future__ import annotations

from functools import partial
from typing import Final

from app.codec.form import parse_form
from app.codec.json_body import parse_json_body
from app.codec.message import Message
from app.codec.numpy_files import NPY_MAGIC, ZIP_MAGIC, npy_message, npz_message
from app.errors import InvalidRequestError, UnsupportedMediaTypeError
from app.images.decode import FORMATS, Picture
from app.images.header_scan import format_of
from app.messages import cut
from app.settings import Settings
from app.signature import Inputs, Signature

JSON: Final = "application/json"
FORM: Final = "multipart/form-data"
NPY: Final = "application/x-npy"
NPZ: Final = "application/x-npz"
PNG: Final = "image/png"
TAKEN: Final = (JSON, FORM, "image/*", NPY, NPZ)

# What clients say that say nothing: curl calls whatever it sends a form.
_UNTYPED: Final = ("", "application/octet-stream", "application/x-www-form-urlencoded")
_PICTURE_TYPES: Final = {f"image/{name.lower()}" for name in (*FORMATS, "jpg", "pjpeg", "x-png", "x-ms-bmp", "tif")}
# What a body that came without a type begins with, pictures apart.
_BEGINNINGS: Final = ((NPY_MAGIC, NPY), (ZIP_MAGIC, NPZ), (b"{", JSON), (b"[", JSON))


def parse(body: bytes | bytearray, content_type: str, settings: Settings) -> Message:
    """What a request says.

    Raises:
        UnsupportedMediaTypeError: listing the types taken, with the one the body looks like.
        InvalidRequestError: malformed, or empty.
    """
    if not body:
        raise InvalidRequestError("the body is empty")
    media_type = _media_type(body, content_type)
    if media_type == JSON:
        return parse_json_body(body, settings)
    if media_type == FORM:
        return parse_form(body, content_type, settings)
    if media_type == NPY:
        return npy_message(body, settings)
    if media_type == NPZ:
        return npz_message(body, settings)
    if media_type in _PICTURE_TYPES:
        return Message(decode=partial(_picture, body))
    raise _unsupported(media_type, body)


def reads_all(body: bytes | bytearray, content_type: str) -> bool:
    """Whether ``parse`` goes through the body; of arrays and pictures that is left to the message's ``decode``."""
    return _media_type(body, content_type) in (JSON, FORM)


def _media_type(body: bytes | bytearray, content_type: str) -> str:
    media_type = content_type.partition(";")[0].strip().lower()
    return _guess(body) or media_type if media_type in _UNTYPED else media_type


def _picture(body: bytes | bytearray, signature: Signature) -> Inputs:
    return {signature.picture_port().name: (Picture(data=body),)}


def _guess(body: bytes | bytearray) -> str | None:
    start = bytes(body[:64]).lstrip()
    picture = format_of(bytes(body[:12]))
    if picture is not None:
        return f"image/{picture.lower()}"
    return next((media_type for beginning, media_type in _BEGINNINGS if start.startswith(beginning)), None)


def _unsupported(media_type: str, body: bytes | bytearray) -> UnsupportedMediaTypeError:
    guess = _guess(body)
    hint = f"; the body looks like {guess}: send -H 'content-type: {guess}'" if guess else ""
    return UnsupportedMediaTypeError(
        f"Content-Type: found '{cut(media_type) or 'none'}', expected one of {', '.join(TAKEN)}{hint}",
        found=cut(media_type) or None,
        expected=list(TAKEN),
    )
