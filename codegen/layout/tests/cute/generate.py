#!/usr/bin/env python3
"""Asks CuTe for the answers that `tests/cute.rs` compares with.

    generate.py CUTLASS_INCLUDE CUDA_INCLUDE > answers.txt

Random static layouts, as C++ types, go through CuTe's own headers with g++. A line of the output is `EXPRESSION => ANSWER`,
or `EXPRESSION => !` where CuTe refuses to compile it (a static assertion). Deterministic for a given CUTLASS.
"""
import random
import re
import subprocess
import sys
import tempfile
from pathlib import Path

INCLUDES = sys.argv[1:]
R = random.Random(7)

HEADER = """
#include <cute/tensor.hpp>
#include <cute/swizzle_layout.hpp>
#include <cute/atom/copy_atom.hpp>
#include <iostream>
#include <sstream>
using namespace cute;
template <class T> void show(char const* e, T const& t) {
  std::ostringstream s; s << t; std::string r; bool prior = false;
  for (char c : s.str()) { if (c == '_' && !prior) { prior = true; continue; } r += c; prior = false; }
  std::cout << e << " => " << r << "\\n";
}
template <class L> auto ten(L const& l) { return make_tensor(static_cast<int const*>(nullptr), l); }
template <class L> auto lay(L const& l) { return l.layout(); }
template <class A, class T, class V> auto tiled(A a, T t, V v) { return make_tiled_copy(a, t, v); }
template <int N> using Atom = Copy_Atom<UniversalCopy<uint_bit_t<N*8>>, uint8_t>;
"""


def text(t):
    return str(t) if isinstance(t, (int, str)) else "(" + ",".join(map(text, t)) + ")"


def ctype(t):
    if t == "_":
        return "Underscore"
    if isinstance(t, int):
        return f"Int<{t}>"
    return "cute::tuple<" + ",".join(map(ctype, t)) + ">"


class L:
    """A layout."""

    def __init__(self, s, d):
        self.s, self.d = s, d

    def __str__(self):
        return f"{text(self.s)}:{text(self.d)}"

    def cpp(self):
        return f"Layout<{ctype(self.s)},{ctype(self.d)}>{{}}"


class Tile:
    """A tuple of tilers."""

    def __init__(self, *parts):
        self.parts = parts

    def __str__(self):
        return "<" + ",".join(map(str, self.parts)) + ">"

    def cpp(self):
        return "make_tile(" + ",".join(cpp(p) for p in self.parts) + ")"


class Sw:
    """A swizzle after a layout."""

    def __init__(self, b, m, s, layout, offset=0):
        self.p, self.l, self.o = (b, m, s), layout, offset

    def __str__(self):
        return "Sw<%d,%d,%d> o %d o %s" % (*self.p, self.o, self.l)

    def cpp(self):
        return "composition(Swizzle<%d,%d,%d>{},Int<%d>{},%s)" % (*self.p, self.o, self.l.cpp())


def cpp(x):
    return x.cpp() if hasattr(x, "cpp") else ctype(x) + "{}"


def leaves(t):
    return [t] if isinstance(t, int) else [x for e in t for x in leaves(e)]


def size(t):
    p = 1
    for x in leaves(t):
        p *= x
    return p


def shape(depth=2, top=4, extents=(1, 2, 2, 3, 4, 4, 5, 6, 8)):
    if depth == 0 or (depth < 2 and R.random() < 0.6):
        return R.choice(extents)
    return tuple(shape(depth - 1, 3, extents) for _ in range(R.randint(1, top)))


def rebuild(t, it):
    return next(it) if isinstance(t, int) else tuple(rebuild(e, it) for e in t)


def strides(s, kind):
    flat = leaves(s)
    n = len(flat)
    order = list(range(n))
    out = [0] * n
    if kind == "col":
        pass
    elif kind == "row":
        order.reverse()
    else:
        R.shuffle(order)
    step = 1
    for i in order:
        out[i] = step
        step *= flat[i]
        if kind == "gaps" and R.random() < 0.5:
            step *= R.choice((2, 3))
    if kind == "zeros":
        out = [0 if R.random() < 0.4 else d for d in out]
    if kind == "wild":
        out = [R.choice((0, 1, 1, 2, 3, 4, 5, 6, 8, 12, 16, -1, -4)) for _ in flat]
    return rebuild(s, iter(out))


def layout(depth=2, top=4, kinds=("col", "row", "mixed", "gaps", "zeros", "wild"), limit=4096):
    while True:
        s = R.choice((1, 2, 4, 6, 8, 12, 16, 24)) if R.random() < 0.15 else shape(depth, top)
        if size(s) <= limit:
            return L(s, strides(s, R.choice(kinds)))


TAME = ("col", "row", "mixed", "gaps")


def divisor(n):
    return R.choice([d for d in range(1, n + 1) if n % d == 0])


def factored(n, parts):
    out = []
    for _ in range(parts - 1):
        d = divisor(n)
        out.append(d)
        n //= d
    return out + [n]


def selector(n):
    """A layout that picks within n elements evenly, more often than not."""
    if R.random() < 0.2:
        return layout(1, 3)
    f = factored(n, R.randint(1, 4))
    steps, step = [], 1
    for x in f:
        steps.append((x, step))
        step *= x
    R.shuffle(steps)
    keep = steps[: R.randint(1, len(steps))]
    if R.random() < 0.15:
        keep.append((R.choice((1, 2, 3)), 0))
    if len(keep) == 1 and R.random() < 0.6:
        return L(*keep[0])
    return L(tuple(s for s, _ in keep), tuple(d for _, d in keep))


def coord(s, hole=0.4):
    if R.random() < hole:
        return "_"
    if isinstance(s, int) or R.random() < 0.3:
        return R.randrange(size(s))
    return tuple(coord(e, hole) for e in s)


def pure(s):
    if isinstance(s, int) or R.random() < 0.2:
        return R.randrange(size(s))
    return tuple(pure(e) for e in s)


def rank(s):
    return 1 if isinstance(s, int) else len(s)


def modes(l):
    return [l] if isinstance(l.s, int) else [L(s, d) for s, d in zip(l.s, l.d)]


def tiler(l):
    parts = []
    for m in modes(l)[: R.randint(1, rank(l.s))]:
        r = R.random()
        n = divisor(size(m.s)) if R.random() < 0.8 else R.choice((2, 3, 4, 5, 8))
        parts.append(n if r < 0.6 else selector(size(m.s)) if r < 0.9 else L(n, 1))
    return Tile(*parts) if any(isinstance(p, L) for p in parts) else tuple(parts)


def call(name, *args, template=()):
    t = "<" + ",".join(map(str, template)) + ">" if template else ""
    return (
        f"{name}{t}({','.join(text(a) if isinstance(a, (int, str, tuple)) else str(a) for a in args)})",
        f"{name}{t}({','.join(cpp(a) for a in args)})",
    )


def swizzled(depth=1):
    b = R.randint(1, 3)
    s = R.choice((1, -1)) * R.randint(b, 4)
    m = R.randint(0, 3)
    sh = tuple(R.choice((2, 4, 8, 8, 16)) for _ in range(R.randint(1, 3)))
    return Sw(b, m, s, L(sh, strides(sh, R.choice(("col", "row")))))


def cases():
    for _ in range(90):
        yield call("coalesce", layout(3))
    for _ in range(40):
        l = layout(3)
        yield call("coalesce", l, tuple(1 for _ in modes(l)))
    for _ in range(40):
        yield call("filter", layout(3))
        yield call("filter_zeros", layout(2))
    for _ in range(260):
        a = layout()
        yield call("composition", a, selector(size(a.s)))
    for _ in range(60):
        yield call("composition", layout(1), layout(1))
    for _ in range(80):
        a = layout()
        yield call("composition", a, tiler(a))
    for _ in range(90):
        a = layout(2, 3)
        yield call("complement", a, R.choice((1, 2, 8, 12, 24, 48, 100)))
        yield call("complement", layout(1, 3, TAME), shape(1, 3))
        yield call("complement", layout(2, 3))
    for _ in range(80):
        yield call("right_inverse", layout())
        yield call("left_inverse", layout(2, 4, TAME + ("zeros",)))
    for _ in range(30):
        yield call("left_inverse", layout())
        yield call("nullspace", layout())
    for name in ("logical_divide", "zipped_divide", "tiled_divide", "flat_divide"):
        for _ in range(60):
            a = layout(2, 3)
            yield call(name, a, selector(size(a.s)))
            yield call(name, a, tiler(a))
    for name in ("logical_product", "zipped_product", "tiled_product", "flat_product"):
        for _ in range(30):
            yield call(name, layout(1, 3), layout(1, 3, TAME))
            a = layout(1, 3, TAME)
            yield call(name, a, tiler(a))
    for name in ("blocked_product", "raked_product"):
        for _ in range(50):
            yield call(name, layout(1, 3, TAME + ("zeros",)), layout(1, 3, TAME))
    for _ in range(50):
        a = layout(1, 3, TAME)
        t = tuple(size(m.s) * R.choice((1, 2, 3)) for m in modes(a)) + (3,) * R.randint(0, 1)
        yield call("tile_to_shape", a, t)
        order = list(range(len(t)))
        R.shuffle(order)
        yield call("tile_to_shape", a, t, tuple(order))
    for _ in range(60):
        a = layout(2)
        c = coord(a.s)
        if c != "_" and "_" in text(c):
            yield call("slice", c, a)
        yield call("dice", c, a)
    for _ in range(60):
        a = layout(3)
        yield call("crd2idx", pure(a.s), a)
        yield call("crd2idx", pure(a.s), a.s)
        yield call("idx2crd", R.randrange(size(a.s)), a.s)
    for _ in range(60):
        a, b = layout(1, 3, ("col", "row", "mixed")), layout(1, 3, ("col", "row", "mixed"))
        yield call("max_common_vector", a, b)
        yield call("max_common_layout", a, b)
    for n in (2, 3, 4, 8):
        for _ in range(20):
            yield call("upcast", layout(2), template=(n,))
            yield call("downcast", layout(2), template=(n,))
    for _ in range(40):
        s = shape(2)
        order = list(range(rank(s)))
        R.shuffle(order)
        yield call("make_ordered_layout", s, tuple(order) if isinstance(s, tuple) else 1)
        e, c = call("make_layout", s)
        yield (e, c)
        yield (f"make_layout({text(s)},LayoutRight)", f"make_layout({cpp(s)},LayoutRight{{}})")
        yield call("make_layout_like", layout(2))
        yield call("make_fragment_like", layout(2))
        yield call("max_alignment", layout(2))
        yield call("domain_distribute", shape(1), R.choice((1, 2, 4, 6, 12, 24)))
    for _ in range(60):
        s = (R.choice((8, 12, 16)), R.choice((8, 16, 24)))
        a = L(s, strides(s, R.choice(("col", "row"))))
        t = (R.choice((2, 4, 8)), R.choice((2, 4, 8)))
        c = (R.randrange(2), "_" if R.random() < 0.3 else R.randrange(2))
        yield (f"local_tile({a},{text(t)},{text(c)})", f"lay(local_tile(ten({a.cpp()}),{cpp(t)},{cpp(c)}))")
        th = layout(1, 2, ("col", "row"), 64)
        if rank(th.s) <= 2:
            i = R.randrange(size(th.s))
            yield (
                f"local_partition({a},{th},{i})",
                f"lay(local_partition(ten({a.cpp()}),{th.cpp()},Int<{i}>{{}}))",
            )
    for _ in range(50):
        sh = (R.choice((1, 2, 4, 8)), R.choice((1, 2, 4, 8)))
        th = L(sh, strides(sh, R.choice(("col", "row"))))
        vs = (R.choice((1, 2, 4)), R.choice((1, 2, 4)))
        va = L(vs, strides(vs, R.choice(("col", "row"))))
        yield (
            f"layout_tv({th},{va})",
            f"typename decltype(tiled(Atom<1>{{}},{th.cpp()},{va.cpp()}))::TiledLayout_TV{{}}",
        )
        n = R.choice((1, 1, 2, 4))
        if size(vs) % n == 0:
            big = (sh[0] * vs[0] * R.choice((1, 2, 3)), sh[1] * vs[1] * R.choice((1, 2)))
            data = L(big, strides(big, R.choice(("col", "row"))))
            i = R.randrange(size(sh))
            yield (
                f"partition_S({th},{va},{data},{i},{n})",
                f"lay(tiled(Atom<{n}>{{}},{th.cpp()},{va.cpp()}).get_slice(Int<{i}>{{}}).partition_S(ten({data.cpp()})))",
            )
    for _ in range(90):
        w = swizzled()
        yield call("right_inverse", w)
        yield call("left_inverse", w)
        yield call("upcast", w, template=(R.choice((2, 4)),))
        yield call("downcast", w, template=(R.choice((2, 4)),))
        c = coord(w.l.s, 0.5)
        if c != "_" and "_" in text(c):
            yield call("slice", c, w)
            yield call("slice_and_offset", c, w)
        c = pure(w.l.s)
        yield (f"({w})({text(c)})", f"{w.cpp()}({cpp(c)})")
        a = layout(1, 3, ("col", "row"))
        yield call("composition", a, w)
        yield call("zipped_divide", w, tuple(divisor(x) for x in w.l.s))
        yield call("max_common_vector", w, L(w.l.s, w.l.d))


def build(directory, lines, keep_going):
    source = Path(directory) / "cases.cpp"
    body = []
    # Functions of a few cases each, so that no function grows large.
    for i in range(0, len(lines), 20):
        body.append(f"void f{i}() {{")
        body += lines[i : i + 20]
        body.append("}")
    calls = "".join(f"f{i}();" for i in range(0, len(lines), 20))
    source.write_text(HEADER + "\n".join(body) + f"\nint main() {{ {calls} }}\n")
    flags = ["-std=c++17", "-O0", "-w", "-fmax-errors=0", "-ftemplate-backtrace-limit=0"]
    if keep_going:
        flags.append("-fsyntax-only")
    includes = [f for i in INCLUDES for f in ("-I", i)] + ["-I", INCLUDES[1] + "/cccl"]
    return source, subprocess.run(
        ["g++", *flags, *includes, str(source), "-o", str(source.with_suffix(""))], capture_output=True, text=True
    )


def main():
    seen, todo = set(), []
    for e, c in cases():
        if e not in seen and len(e) < 160:
            seen.add(e)
            todo.append((e, c))
    refused = set()
    with tempfile.TemporaryDirectory() as directory:
        for start in range(0, len(todo), 400):
            chunk = todo[start : start + 400]
            statements = [f'show("{e}", {c});' for e, c in chunk]
            while True:
                live = [i for i in range(len(chunk)) if start + i not in refused]
                source, result = build(directory, [statements[i] for i in live], False)
                if result.returncode == 0:
                    break
                text_lines = source.read_text().split("\n")
                bad = {text_lines[int(n) - 1] for n in re.findall(r"cases\.cpp:(\d+):", result.stderr)}
                found = {start + i for i in live if statements[i] in bad}
                if not found:
                    sys.exit(result.stderr[:4000])
                refused |= found
            answers = subprocess.run([str(source.with_suffix(""))], capture_output=True, text=True, check=True).stdout
            answers = dict(line.split(" => ", 1) for line in answers.splitlines())
            for i, (e, _) in enumerate(chunk):
                print(f"{e} => {'!' if start + i in refused else answers[e]}")


main()
