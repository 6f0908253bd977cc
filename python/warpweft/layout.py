"""Layouts as values: CuTe's layout algebra on integers.

    >>> from warpweft import Layout
    >>> Layout("(4,8):(8,1)")(2, 3)
    19
    >>> Layout((4, 8)).composition(Layout("4:8"))
    Layout('4:8')

The most used functions are methods of :class:`Layout`. Every function of the language is also a function of this module,
under CuTe's name: ``layout.max_common_vector(a, b)``, ``layout.recast(a, template=(16, 8))``. :func:`functions` lists them,
and :func:`evaluate` takes any expression that ``weft layout`` takes. Source: CuTe's documentation, "CuTe Layout Algebra".
"""

from __future__ import annotations

import re
from typing import Any, Union

from . import _native
from ._errors import LayoutError, usage

#: Integers, or tuples of such.
IntTuple = Union[int, tuple]

_NUMBERS = re.compile(r"^[0-9()\-,\s]*$")


def _text(value: Any) -> str:
    """Write a value as expressions have it."""
    if isinstance(value, (Layout, str)):
        return str(value)
    if value is None or value is Ellipsis:
        return "_"
    if isinstance(value, (tuple, list)):
        return "(" + ",".join(_text(v) for v in value) + ")"
    if isinstance(value, bool):
        return "true" if value else "false"
    try:
        return str(value.__index__())
    except AttributeError:
        raise TypeError(f"{value!r} is not a part of a layout: expected integers, tuples of them, layouts or text") from None


def _tuple(text: str) -> Any:
    """Read integers and tuples of them; other text stays text."""
    if not _NUMBERS.match(text) or not text.strip():
        return text
    # "(4)" is an integer in parentheses to Python too.
    return eval(text, {"__builtins__": {}})  # noqa: S307 (only digits, commas and parentheses)


def _value(kind: str, text: str) -> Any:
    if kind in ("layout", "composed"):
        return Layout(text)
    if kind == "bool":
        return text == "true"
    return _tuple(text) if kind in ("int", "tuple") else text


def evaluate(expression: str) -> Any:
    """Return the value of a layout expression, such as ``composition((4,8):(8,1), 2:4)``.

    Layouts become :class:`Layout`, integers and tuples become Python's, and what Python has no value for stays text.
    """
    values = [_value(kind, text) for kind, text in _native.evaluate(expression)]
    return values[0] if len(values) == 1 else values


def functions() -> dict:
    """Return the signature and the meaning of every function of expressions, by name."""
    return {name: (signature, doc) for name, signature, doc in _native.layout_functions()}


class Layout:
    """A layout: a function from coordinates to integers, given by a shape and strides.

    ``Layout("(4,8):(8,1)")`` takes text; ``Layout((4, 8), (8, 1))`` takes a shape and strides. Without strides the layout
    is compact from the left, as CuTe's ``make_layout`` makes it.
    """

    __slots__ = ("_text",)

    def __init__(self, shape: Any, stride: Any = None):
        if stride is not None:
            text = f"{_text(shape)}:{_text(stride)}"
        elif isinstance(shape, (str, Layout)):
            text = str(shape)
        else:
            text = f"make_layout({_text(shape)})"
        (value,) = _native.evaluate(text)
        if value[0] not in ("layout", "composed"):
            raise usage(f"`{text}` is {value[1]}, which is not a layout", "a layout has a shape and strides: (4,8):(8,1)")
        self._text = value[1]

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"Layout({self._text!r})"

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, Layout) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)

    def _call(self, name: str, *arguments: Any) -> Any:
        given = ",".join([self._text, *(_text(a) for a in arguments)])
        return evaluate(f"{name}({given})")

    def __call__(self, *coordinate: Any) -> Any:
        """Return the index of a coordinate; with None for a mode, the layout of that slice."""
        at = coordinate[0] if len(coordinate) == 1 else coordinate
        if "_" in _text(at):
            return evaluate(f"slice_and_offset({_text(at)},{self._text})")
        return evaluate(f"crd2idx({_text(at)},{self._text})")

    def __getitem__(self, mode: int) -> Layout:
        """Return a mode as a layout."""
        rank = self.rank
        number = mode + rank if mode < 0 else mode
        if not 0 <= number < rank:
            raise IndexError(f"mode {mode} of a layout with {rank} modes")
        return self._call(f"layout<{number}>")

    def __len__(self) -> int:
        return self.rank

    def __iter__(self):
        return (self[mode] for mode in range(self.rank))

    @property
    def shape(self) -> IntTuple:
        """The extents, an integer or nested tuples."""
        return self._call("shape")

    @property
    def stride(self) -> IntTuple:
        """The strides, nested as the shape is."""
        return self._call("stride")

    @property
    def rank(self) -> int:
        """The number of modes."""
        return self._call("rank")

    @property
    def depth(self) -> int:
        """How deep the shape is nested."""
        return self._call("depth")

    @property
    def size(self) -> int:
        """The number of coordinates."""
        return self._call("size")

    @property
    def cosize(self) -> int:
        """One more than the largest index."""
        return self._call("cosize")

    def composition(self, other: Any) -> Layout:
        """Return the layout that applies ``other`` first and then this one; tilers are taken too."""
        return self._call("composition", other)

    def __matmul__(self, other: Any) -> Layout:
        """Compose: ``(a @ b)(c) == a(b(c))``."""
        return self.composition(other)

    def complement(self, cotarget: Any = None) -> Layout:
        """Return the layout of the indices that this one does not reach, up to a size."""
        return self._call("complement", *([] if cotarget is None else [cotarget]))

    def coalesce(self, *profile: Any) -> Layout:
        """Return the same function with as few modes as possible, or as few within each mode of a profile."""
        return self._call("coalesce", *profile)

    def filter(self, *profile: Any) -> Layout:
        """Return it without modes of stride 0 or extent 1."""
        return self._call("filter", *profile)

    def right_inverse(self) -> Layout:
        """Return the layout with ``self(inverse(i)) == i``, as far as there is one."""
        return self._call("right_inverse")

    def left_inverse(self) -> Layout:
        """Return the layout with ``inverse(self(i)) == i``."""
        return self._call("left_inverse")

    def logical_divide(self, tiler: Any) -> Layout:
        """Return it as tiles and the rest, mode by mode."""
        return self._call("logical_divide", tiler)

    def zipped_divide(self, tiler: Any) -> Layout:
        """Return it as ``((tile), (rest))``."""
        return self._call("zipped_divide", tiler)

    def tiled_divide(self, tiler: Any) -> Layout:
        """Return it as ``((tile), rest, ...)``."""
        return self._call("tiled_divide", tiler)

    def flat_divide(self, tiler: Any) -> Layout:
        """Return it as ``(tile, ..., rest, ...)``."""
        return self._call("flat_divide", tiler)

    def logical_product(self, tiler: Any) -> Layout:
        """Return this layout repeated as another one says."""
        return self._call("logical_product", tiler)

    def zipped_product(self, tiler: Any) -> Layout:
        """Return the product as ``((tile), (rest))``."""
        return self._call("zipped_product", tiler)

    def tiled_product(self, tiler: Any) -> Layout:
        """Return the product as ``((tile), rest, ...)``."""
        return self._call("tiled_product", tiler)

    def blocked_product(self, tiler: Any) -> Layout:
        """Return the product whose tiles lie beside each other in blocks."""
        return self._call("blocked_product", tiler)

    def raked_product(self, tiler: Any) -> Layout:
        """Return the product whose tiles are interleaved."""
        return self._call("raked_product", tiler)

    def upcast(self, n: int) -> Layout:
        """Return it for elements that are ``n`` times as wide."""
        return self._call(f"upcast<{int(n)}>")

    def downcast(self, n: int) -> Layout:
        """Return it for elements of which ``n`` fit into one of now."""
        return self._call(f"downcast<{int(n)}>")

    def table(self) -> str:
        """Return the grid of coordinates and indices as text."""
        return _native.draw_layout(self._text, False)

    def svg(self) -> str:
        """Return a picture of the layout."""
        return _native.draw_layout(self._text, True)

    def _repr_svg_(self) -> Any:
        try:
            drawn = self.svg()
        except LayoutError:  # It is too large to draw; a notebook then shows the text.
            return None
        return drawn[drawn.index("<svg") :]


def _function(name: str):
    def call(*arguments: Any, template: Any = None) -> Any:
        words = "" if template is None else "<" + _text(template).strip("()") + ">"
        return evaluate(f"{name}{words}({','.join(_text(a) for a in arguments)})")

    signature, doc = functions()[name]
    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"{signature}\n\nReturn {doc}."
    return call


def __getattr__(name: str) -> Any:
    if name.startswith("_") or name not in functions():
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    made = _function(name)
    globals()[name] = made
    return made


def __dir__() -> list:
    return sorted({*globals(), *functions()})
