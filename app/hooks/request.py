"""Request as a hook gets it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal

from PIL import Image

from app.codec.json_body import parse_request_json
from app.images.decode import Picture
from app.memory.reservation import charge

_BYTES_PER_PIXEL: Final = 8
_WHITE: Final = (255, 255, 255)


class RefusedByHook(Exception):  # noqa: N818  # it is no fault of the program: hooks raise it for a bad request
    """Refusal of a request by a hook; the client gets the message with status 422."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HookRequest:
    """Request as ``preprocess`` gets it.

    Attributes:
        body: body as sent.
        content_type: value of its header, empty if there is none.
        max_pixels: most pixels of a picture.
        Refused: error to raise with a message for the client, who gets it with status 422.
    """

    body: memoryview
    content_type: str = ""
    max_pixels: int = 0

    Refused: ClassVar[type[Exception]] = RefusedByHook

    def json(self) -> Any:
        """Return the body as parsed JSON.

        Raises:
            InvalidRequestError: the body is not JSON.
        """
        return parse_request_json(bytes(self.body))

    def image(self, mode: Literal["RGB", "L"] = "RGB") -> Image.Image:
        """Return the body as an upright picture.

        Raises:
            ServiceError: the body is not a picture, or the picture is too large.
        """
        picture = Picture(data=self.body).open(max_pixels=self.max_pixels)
        charge(_BYTES_PER_PIXEL * picture.size[0] * picture.size[1])
        return picture.decode(mode, _WHITE, picture.size)
