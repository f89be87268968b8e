"""Hypothesis strategies for trees and for damaged and random texts."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st

from engine.expression import FUNCTIONS, Call, Input, List, Literal, Node, format
from tests.nightly import IS_NIGHTLY

steady = settings(max_examples=2000 if IS_NIGHTLY else 120, deadline=None, derandomize=True)

numbers = st.one_of(
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-5, 5),
    st.floats(allow_nan=True, allow_infinity=True),
    st.complex_numbers(allow_nan=True, allow_infinity=True),
)
leaves: st.SearchStrategy[Node] = st.one_of(st.builds(Input, st.integers(0, 3)), st.builds(Literal, numbers))
words = st.one_of(
    st.sampled_from(["linear", "cpu", "ij", "floor", "sub", "torch.float", "my key", "12ab"]),
    st.text(min_size=1, max_size=8),
)


def calls(args: st.SearchStrategy[Node], names: list[str] | None = None) -> st.SearchStrategy[Node]:
    """Calls of any function, or of some, with as many arguments as it can take."""
    return st.sampled_from(names or sorted(FUNCTIONS)).flatmap(
        lambda name: st.builds(Call, st.just(name), st.tuples(*[args] * FUNCTIONS[name].arity[-1]))
    )


values: st.SearchStrategy[Node] = st.recursive(leaves, calls, max_leaves=20)
items = st.one_of(values, st.just(Literal(None)))
lists: st.SearchStrategy[Node] = st.recursive(
    st.builds(List, st.lists(items, max_size=4).map(tuple)),
    lambda inner: st.builds(List, st.lists(st.one_of(items, inner), max_size=4).map(tuple)),
    max_leaves=6,
)
trees: st.SearchStrategy[Node] = st.one_of(values, lists, st.just(Literal(None)))

token_texts = st.one_of(
    st.sampled_from([*FUNCTIONS, "(", ")", ",", "[", "]", "@0", "@1", "1", "-2.5", "nan.0", "1j", "None", "True"]),
    st.text(max_size=3),
)
texts = st.one_of(st.text(max_size=40), st.lists(token_texts, max_size=25).map("".join))


@st.composite
def damaged(draw: st.DrawFn, tree: Node) -> str:
    """The text of a tree with some parentheses lost, as a converter loses them: ``log1p(@0)`` becomes ``log1p,@0``."""
    return "".join(
        draw(st.sampled_from([character, {"(": ",", ")": ""}[character]])) if character in "()" else character
        for character in format(tree)
    )
