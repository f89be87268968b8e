"""Choice of the decoder for a body by its Content-Type."""

from __future__ import annotations

from functools import partial
from typing import Final

from app.codec.form import parse_form
from app.codec.json_body import parse_json_body
from app.codec.message import Message
from app.codec.numpy_files import NPY_MAGIC, ZIP_MAGIC, npy_message, npz_message
from app.errors import InvalidRequestError, UnsupportedMediaTypeError
from app.images.decode import FORMATS, Picture
from app.images.headers import format_of
from app.messages import cut
from app.settings import Settings
from app.signature import Inputs, Signature
from app.sound import decode as sound
from app.sound.sound import Sound, Sounds

JSON: Final = "application/json"
FORM: Final = "multipart/form-data"
NPY: Final = "application/x-npy"
NPZ: Final = "application/x-npz"
PNG: Final = "image/png"
TAKEN: Final = (JSON, FORM, "image/*", "audio/*", NPY, NPZ)

# Types that carry no information: curl labels any body a form.
_UNTYPED: Final = ("", "application/octet-stream", "application/x-www-form-urlencoded")
_PICTURE_TYPES: Final = {f"image/{name.lower()}" for name in (*FORMATS, "jpg", "pjpeg", "x-png", "x-ms-bmp", "tif")}
# Types of sounds, with other names in use.
_SOUND_TYPES: Final = {
    *sound.FORMATS.values(), "audio/wave", "audio/x-wav", "audio/vnd.wave", "audio/x-flac", "audio/mp3",
    "application/ogg", "audio/vorbis", "audio/opus", "audio/x-aiff", "audio/*",
}  # fmt: skip
# First bytes of a body without a type, except images and sounds.
_BEGINNINGS: Final = ((NPY_MAGIC, NPY), (ZIP_MAGIC, NPZ), (b"{", JSON), (b"[", JSON))


def parse(body: bytes | bytearray, content_type: str, settings: Settings) -> Message:
    """Return the contents of a request.

    Raises:
        UnsupportedMediaTypeError: lists the accepted types and the one that the body looks like.
        InvalidRequestError: the body is malformed or empty.
    """
    if not body:
        raise InvalidRequestError(f"the body is empty, expected one of {', '.join(TAKEN)}")
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
    if media_type in _SOUND_TYPES:
        return Message(decode=partial(_sound, body))
    raise _unsupported(media_type, body)


def reads_all(body: bytes | bytearray, content_type: str) -> bool:
    """Return whether ``parse`` reads the whole body; ``decode`` of the message reads arrays, images and sounds."""
    return _media_type(body, content_type) in (JSON, FORM)


def _media_type(body: bytes | bytearray, content_type: str) -> str:
    media_type = content_type.partition(";")[0].strip().lower()
    return _guess(body) or media_type if media_type in _UNTYPED else media_type


def _picture(body: bytes | bytearray, signature: Signature) -> Inputs:
    return {signature.content_port("picture").name: (Picture(data=body),)}


def _sound(body: bytes | bytearray, signature: Signature) -> Inputs:
    return {signature.content_port("sound").name: Sounds((Sound(body),))}


def _guess(body: bytes | bytearray) -> str | None:
    start = bytes(body[:64]).lstrip()
    picture = format_of(bytes(body[:12]))
    if picture is not None:
        return f"image/{picture.lower()}"
    if (kind := sound.format_of(bytes(body[:12]))) is not None:
        return kind
    return next((media_type for beginning, media_type in _BEGINNINGS if start.startswith(beginning)), None)


def _unsupported(media_type: str, body: bytes | bytearray) -> UnsupportedMediaTypeError:
    guess = _guess(body)
    hint = f"; the body looks like {guess}: send -H 'content-type: {guess}'" if guess else ""
    return UnsupportedMediaTypeError(
        f"Content-Type: found '{cut(media_type) or 'none'}', expected one of {', '.join(TAKEN)}{hint}",
        found=cut(media_type) or None,
        expected=list(TAKEN),
    )
