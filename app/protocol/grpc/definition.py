"""A .proto file -> its descriptor, for as much of the language (proto3) as the two files beside this one use.

The files are what clients in other languages are made from, so they are the definition here as well: there is no
generated code that would have to be kept in step with them, and with the version of protobuf. Tests hold what comes out
against the descriptors of another client.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)

_TOKEN: Final = re.compile(r'//[^\n]*|"[^"]*"|[\w.]+|\S')
_SCALARS: Final = {
    name: getattr(FieldDescriptorProto, f"TYPE_{name.upper()}")
    for name in ("bool", "int32", "int64", "uint32", "uint64", "float", "double", "string", "bytes")
}


def read_definition(name: str, text: str) -> Any:
    """The FileDescriptorProto of a file's text.

    Raises:
        ValueError: it uses something that is not understood here.
    """
    return _Reader(name, text).file()


class _Reader:
    def __init__(self, name: str, text: str) -> None:
        self._tokens: Iterator[str] = iter([token for token in _TOKEN.findall(text) if not token.startswith("//")])
        self._file = FileDescriptorProto(name=name, syntax="proto3")

    def file(self) -> Any:
        for word in self._tokens:
            if word == "syntax":
                self._expect("=", '"proto3"', ";")
            elif word == "package":
                self._file.package = next(self._tokens)
                self._expect(";")
            elif word == "service":
                self._service(self._file.service.add(name=self._opened()))
            elif word == "message":
                self._message(self._file.message_type.add(name=self._opened()), f".{self._file.package}")
            elif word == "enum":
                self._enum(self._file.enum_type.add(name=self._opened()))
            else:
                raise ValueError(
                    f"{self._file.name}: found '{word}', expected syntax, package, service, message or enum"
                )
        _settle(self._file)
        return self._file

    def _expect(self, *words: str) -> None:
        for word in words:
            found = next(self._tokens, "the end")
            if found != word:
                raise ValueError(f"{self._file.name}: found '{found}', expected '{word}'")

    def _opened(self) -> str:
        name = next(self._tokens)
        self._expect("{")
        return name

    def _words(self) -> Iterator[str]:
        """What each statement of a block begins with."""
        for word in self._tokens:
            if word == "}":
                return
            yield word
        raise ValueError(f"{self._file.name}: found the end, expected '}}'")

    def _service(self, service: Any) -> None:
        for _ in self._words():
            method = service.method.add(name=next(self._tokens))
            method.client_streaming, method.input_type = self._argument()
            self._expect("returns")
            method.server_streaming, method.output_type = self._argument()
            self._expect(";")

    def _argument(self) -> tuple[bool, str]:
        self._expect("(")
        name = next(self._tokens)
        is_stream = name == "stream"
        name = next(self._tokens) if is_stream else name
        self._expect(")")
        return is_stream, f".{self._file.package}.{name}"

    def _enum(self, enum: EnumDescriptorProto) -> None:
        for name in self._words():
            self._expect("=")
            enum.value.add(name=name, number=int(next(self._tokens)))
            self._expect(";")

    def _message(self, message: DescriptorProto, scope: str) -> None:
        scope = f"{scope}.{message.name}"
        for word in self._words():
            if word == "message":
                self._message(message.nested_type.add(name=self._opened()), scope)
            elif word == "enum":
                self._enum(message.enum_type.add(name=self._opened()))
            elif word == "oneof":
                message.oneof_decl.add(name=self._opened())
                for kind in self._words():
                    self._field(message, kind).oneof_index = len(message.oneof_decl) - 1
            elif word == "map":
                self._map(message, scope)
            elif word == "repeated":
                self._field(message, next(self._tokens)).label = FieldDescriptorProto.LABEL_REPEATED
            else:
                self._field(message, word)

    def _field(self, message: Any, kind: str) -> Any:
        field = message.field.add(name=next(self._tokens), label=FieldDescriptorProto.LABEL_OPTIONAL)
        _set_type(field, kind)
        self._expect("=")
        field.number = int(next(self._tokens))
        self._expect(";")
        return field

    def _map(self, message: Any, scope: str) -> None:
        """A map is a list of entries, each a message of its own."""
        self._expect("<")
        key = next(self._tokens)
        self._expect(",")
        value = next(self._tokens)
        self._expect(">")
        field = self._field(message, key)
        field.ClearField("type")
        entry = message.nested_type.add(name=f"{field.name.title().replace('_', '')}Entry")
        entry.options.map_entry = True
        for number, (name, kind) in enumerate((("key", key), ("value", value)), 1):
            _set_type(entry.field.add(name=name, number=number, label=FieldDescriptorProto.LABEL_OPTIONAL), kind)
        field.label, field.type_name = FieldDescriptorProto.LABEL_REPEATED, f"{scope}.{entry.name}"


def _set_type(field: Any, kind: str) -> None:
    if kind in _SCALARS:
        field.type = _SCALARS[kind]
    else:
        field.type_name = kind


def _settle(file: Any) -> None:
    """Say of each name of a type what it is, and in full, once all are known: the innermost of that name is meant."""
    kinds: dict[str, int] = {}

    def gather(scope: str, messages: Any, enums: Any) -> None:
        kinds.update({f"{scope}.{enum.name}": FieldDescriptorProto.TYPE_ENUM for enum in enums})
        for message in messages:
            kinds[f"{scope}.{message.name}"] = FieldDescriptorProto.TYPE_MESSAGE
            gather(f"{scope}.{message.name}", message.nested_type, message.enum_type)

    def settle(scope: str, messages: Any) -> None:
        for message in messages:
            inside = f"{scope}.{message.name}"
            for field in message.field:
                if field.type_name:
                    field.type_name = full(field.type_name, inside)
                    field.type = kinds[field.type_name]
            settle(inside, message.nested_type)

    def full(name: str, scope: str) -> str:
        while not name.startswith(".") and scope:
            if f"{scope}.{name}" in kinds:
                return f"{scope}.{name}"
            scope = scope.rpartition(".")[0]
        if name not in kinds:
            raise ValueError(f"{file.name}: there is no type '{name}'")
        return name

    gather(f".{file.package}", file.message_type, file.enum_type)
    settle(f".{file.package}", file.message_type)
