import pickle

import pytest

import warpweft as weft
from warpweft import Layout, LayoutError, layout


def test_a_layout_maps_coordinates_to_indices():
    a = Layout("(4,8):(8,1)")
    assert [a(i, j) for i in range(4) for j in range(8)] == list(range(32))
    assert (a.shape, a.stride, a.size, a.cosize, a.rank, a.depth) == ((4, 8), (8, 1), 32, 32, 2, 1)
    assert a(5) == 1 * 8 + 1
    assert (a[0], a[-1], list(a)) == (Layout("4:8"), Layout("8:1"), [Layout(4, 8), Layout(8, 1)])
    with pytest.raises(IndexError):
        a[2]


def test_shapes_and_strides_make_layouts():
    assert Layout((4, (2, 3))) == Layout("(4,(2,3)):(1,(4,8))")
    assert Layout((4, 8), (8, 1)) == Layout("(4,8):(8,1)")
    assert str(Layout(7)) == "7:1"
    assert eval(repr(Layout((4, 8)))) == Layout((4, 8))
    assert pickle.loads(pickle.dumps(layout.IntTuple)) == layout.IntTuple
    assert len({Layout("4:1"), Layout(4), Layout("(4):(1)")}) <= 2


def test_the_algebra_is_cutes():
    # CuTe's documentation, "Layout Algebra": the first composition and the zipped divide.
    assert Layout("(6,2):(8,2)").composition(Layout("(4,3):(3,1)")) == Layout("((2,2),3):((24,2),8)")
    assert Layout("(9,(4,8)):(59,(13,1))").logical_divide((Layout("3:3"), Layout("(2,4):(1,8)"))).size == 288
    a, b = Layout("20:2"), Layout("(5,4):(4,1)")
    assert all((a @ b)(i) == a(b(i)) for i in range(20))
    r = Layout("(4,8):(8,1)").right_inverse()
    assert all(Layout("(4,8):(8,1)")(r(i)) == i for i in range(32))
    assert Layout("4:1").complement(24) == Layout("6:4")


def test_every_function_of_the_language_is_there():
    assert layout.max_common_vector(Layout("8:1"), Layout("8:1")) == 8
    assert layout.recast(Layout("8:1"), template=(16, 8)) == Layout("16:1")
    assert layout.shape(Layout("(4,(2,3)):(1,(4,8))"), template=1) == (2, 3)
    assert layout.evaluate("slice_and_offset((_,2),(4,8):(8,1))") == [Layout("(4):(8)"), 2]
    assert set(layout.functions()) <= set(dir(layout))
    assert "right_inverse" in layout.right_inverse.__doc__
    with pytest.raises(AttributeError):
        _ = layout.no_such_function


def test_slices_and_pictures():
    a = Layout("(4,8):(8,1)")
    assert a(None, 2) == [Layout("(4):(8)"), 2]
    assert a._repr_svg_().startswith("<svg") and "<svg" in a.svg()
    assert "19" in a.table()
    # What is too large to draw shows as text.
    assert Layout((1 << 20, 1 << 10))._repr_svg_() is None


@pytest.mark.parametrize("text", ["(4,8):(8", "4:1:2", "composition(", "(4,8)", "hello world", ""])
def test_what_is_no_layout_is_an_error(text):
    with pytest.raises((LayoutError, weft.ArgumentError)):
        Layout(text)


def test_errors_say_what_is_wrong():
    with pytest.raises(LayoutError, match="L"):
        Layout("4:1").composition(Layout("(3,5):(7,2)")).composition(Layout("100:3")).logical_divide("(")
    with pytest.raises(TypeError, match="not a part of a layout"):
        Layout("4:1").composition(3.5)
    assert isinstance(LayoutError("x"), ValueError)
