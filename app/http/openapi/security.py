"""How keys are brought, and what is answered without, for a server that asks for them."""

from __future__ import annotations

from typing import Any, Final

from app.http.access import group_of

_SCHEMES: Final = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "header": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
}
_WHY: Final = {"401": "no key, or one that is not known", "403": "the key is not good for this"}


def add_security(document: dict[str, Any]) -> None:
    """Say of every operation that needs a key that it does."""
    document["components"]["securitySchemes"] = _SCHEMES
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            group = group_of(method.upper(), path)
            if group is not None:
                operation["security"] = [{name: []} for name in _SCHEMES]
                operation["description"] = f"{operation.get('description', '')}\n\nNeeds a key for {group}.".strip()
                for status, why in _WHY.items():
                    operation["responses"][status] = {"description": why, "content": _content(operation)}


def _content(operation: dict[str, Any]) -> dict[str, Any]:
    """The shape of the operation's other errors."""
    others = (answer["content"] for status, answer in operation["responses"].items() if status >= "4")
    return next(others, {"application/json": {"schema": {"$ref": "#/components/schemas/ErrorBody"}}})
