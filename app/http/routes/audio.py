"""OpenAI's route for transcriptions. Limits, queues, deadlines and metrics are those of `/infer`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Literal, NamedTuple, get_args

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from app.codec.answers import dump_json
from app.codec.form import MAX_FIELD, Part, split_parts
from app.errors import InvalidRequestError
from app.http.body import BodyRequest, dataplane, first_headers, respond
from app.http.model_request import Reply
from app.http.routes.text import find_version, with_openai_errors
from app.messages import cut, quoted
from app.models.registry.version import Version
from app.models.request import InferRequest
from app.serving.dataplane import Answer
from app.signature import Inputs, Signature
from app.sound.sound import Sound, Sounds
from app.tasks.sounds.speech_to_text import SpeechToTextTask

router = APIRouter(tags=["audio"])
Format = Literal["json", "text", "verbose_json", "srt", "vtt"]
_FORMATS: Final[tuple[str, ...]] = get_args(Format)
_GRANULARITIES: Final = ("timestamp_granularities[]", "timestamp_granularities")
# A pause from which on words are of another segment, and the most characters of a segment: two lines of subtitles.
_PAUSE_S: Final = 0.6
_MOST_CHARACTERS: Final = 84


class Transcription(NamedTuple):
    """Request for a transcription.

    Attributes:
        granularities: what `verbose_json` has: `word`, `segment` or both.
    """

    sound: Sound
    model: str | None
    format: str
    granularities: tuple[str, ...]

    def inputs(self, signature: Signature) -> Inputs:
        """Return the inputs of the model."""
        return {signature.content_port("sound").name: Sounds((self.sound,))}

    def reply(self, answer: Answer) -> Reply:
        """Return the answer in OpenAI's form."""
        (found,) = answer.result.predictions or ({},)
        assert isinstance(found, dict)  # a model for another task was refused
        if self.format in ("json", "verbose_json"):
            body = {"text": found["text"]} if self.format == "json" else _verbose(found, self.granularities)
            return Reply([dump_json(body)], "application/json")
        return Reply([_TEXTS[self.format](found).encode()], "text/plain; charset=utf-8")


def read_form(body: bytearray, content_type: str) -> Transcription:
    """Return the request in a form. Fields that CTC models have no use for are ignored: language, prompt, temperature.

    Raises:
        InvalidRequestError: the form is malformed, has no file, or asks for another format or a stream.
    """
    parts = split_parts(body, content_type)
    fields: dict[str, list[str]] = {}
    for part in parts:
        if part.file_name is None:
            fields.setdefault(part.name, []).append(_text(part))
    files = [part for part in parts if part.file_name is not None and part.name == "file"]
    if len(files) != 1:
        raise InvalidRequestError(f"file: found {len(files)} files, expected one, as in curl -F file=@speech.wav")
    last = {name: values[-1] for name, values in fields.items()}
    if last.get("stream", "false").lower() not in ("false", "0", ""):
        raise InvalidRequestError("stream: found true, expected false: the answer is sent at once")
    found = last.get("response_format", "json")
    if found not in _FORMATS:
        raise InvalidRequestError(f"response_format: found '{cut(found)}', expected {quoted(_FORMATS)}")
    granularities = tuple(each for name in _GRANULARITIES for each in fields.get(name, ()))
    if wrong := [each for each in granularities if each not in ("word", "segment")]:
        raise InvalidRequestError(f"timestamp_granularities: found '{cut(wrong[0])}', expected 'word' or 'segment'")
    sound = Sound(files[0].data, f"the sound '{cut(files[0].file_name or '')}'")
    return Transcription(sound, last.get("model") or None, found, granularities or ("segment",))


def _text(part: Part) -> str:
    if len(part.data) > MAX_FIELD:
        raise InvalidRequestError(f"{cut(part.name)}: found {len(part.data)} bytes, expected at most {MAX_FIELD}")
    return bytes(part.data).decode("utf-8", "replace").strip()


def _segments(found: Mapping[str, Any]) -> list[list[dict[str, Any]]]:
    """Return the words in segments, which end at pauses and before they become too long."""
    segments: list[list[dict[str, Any]]] = []
    for word in found["words"]:
        last = segments[-1] if segments else []
        length = sum(len(each["word"]) + 1 for each in last) + len(word["word"])
        if not last or word["start"] - last[-1]["end"] >= _PAUSE_S or length > _MOST_CHARACTERS:
            segments.append(last := [])
        last.append(word)
    return segments


def _joined(words: Sequence[Mapping[str, Any]]) -> str:
    return " ".join(str(word["word"]) for word in words)


def _verbose(found: Mapping[str, Any], granularities: Sequence[str]) -> dict[str, Any]:
    body = {"task": "transcribe", "language": "unknown", "duration": found["duration"], "text": found["text"]}
    if "segment" in granularities:
        body["segments"] = [
            {
                "id": index, "seek": 0, "start": words[0]["start"], "end": words[-1]["end"], "text": _joined(words),
                "tokens": [], "temperature": 0.0, "avg_logprob": 0.0, "compression_ratio": 1.0, "no_speech_prob": 0.0,
            }
            for index, words in enumerate(_segments(found))
        ]  # fmt: skip
    if "word" in granularities:
        body["words"] = [{key: word[key] for key in ("word", "start", "end")} for word in found["words"]]
    return body


def _srt(found: Mapping[str, Any]) -> str:
    blocks = (
        f"{index}\n{_time(words[0]['start'], ',')} --> {_time(words[-1]['end'], ',')}\n{_joined(words)}\n"
        for index, words in enumerate(_segments(found), 1)
    )
    return "\n".join(blocks)


def _vtt(found: Mapping[str, Any]) -> str:
    blocks = (
        f"{_time(words[0]['start'], '.')} --> {_time(words[-1]['end'], '.')}\n{_joined(words)}\n"
        for words in _segments(found)
    )
    return "\n".join(("WEBVTT\n", *blocks))


def _time(seconds: float, point: str) -> str:
    """Return hours, minutes, seconds and milliseconds."""
    minutes, milliseconds = divmod(round(seconds * 1_000), 60_000)
    whole, rest = divmod(milliseconds, 1_000)
    return f"{minutes // 60:02}:{minutes % 60:02}:{whole:02}{point}{rest:03}"


_TEXTS: Final[dict[str, Callable[[Mapping[str, Any]], str]]] = {
    "text": lambda found: f"{found['text']}\n",
    "srt": _srt,
    "vtt": _vtt,
}
_FORM: Final = {
    "type": "object",
    "required": ["file"],
    "properties": {
        "file": {"type": "string", "format": "binary", "description": "The sound."},
        "model": {"type": "string", "description": "Name of the model; default: the server's default model."},
        "response_format": {"enum": list(_FORMATS), "default": "json"},
        "timestamp_granularities[]": {"type": "array", "items": {"enum": ["word", "segment"]}},
    },
}


@router.post(
    "/v1/audio/transcriptions",
    summary="Text of a sound, as OpenAI's",
    openapi_extra={"requestBody": {"required": True, "content": {"multipart/form-data": {"schema": _FORM}}}},
)
@with_openai_errors
async def transcriptions(request: Request) -> Response:
    """For models with task speech-to-text."""
    plane = dataplane(request)
    headers = first_headers(request)

    def resolve(form: Transcription) -> tuple[Version, InferRequest, Callable[[Answer], Reply]]:
        version = find_version(plane, form.model, (SpeechToTextTask.NAME,))
        is_plain = form.format in ("json", "text")
        return version, InferRequest(form.inputs, {"timestamps": not is_plain}), form.reply

    read = partial(read_form, content_type=headers.get(b"content-type", b"").decode("latin-1"))
    return await respond(request, plane, BodyRequest(plane, headers, read, resolve))
