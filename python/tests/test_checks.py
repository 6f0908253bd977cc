import pytest

import warpweft as weft

WRONG = """
kernel twice<N: int>(x: global<f32, (N):(1)>, out: global<f32, (N):(1)>) block(128) computes(copy(x, out)) {
    let from = partition(x, threads());
    let to = partition(out, threads());
    for i in 0..size<1>(to) { to[_, i] = from[_, i] * 2; }
}
"""


def test_a_good_kernel_is_clean(example):
    report = weft.check(example("allreduce_one_shot.weft"), pes=[2, 3], seeds=2)
    assert report and report.clean and not list(report) and report.runs > 0
    assert "found        nothing" in report.text
    assert "nothing found" in report._repr_html_()


def test_findings_are_objects():
    report = weft.check(WRONG, pes=[2], seeds=2)
    assert not report and len(report) == 1
    (finding,) = report
    assert finding.code == "C001" and finding.count > 0 and finding.replay["pes"] == 2
    assert "twice" in finding.command and "C001" in str(finding)
    assert "C001" in report._repr_html_()


def test_a_barrier_left_out_is_a_race(example):
    text = example("allreduce_two_shot.weft")
    before, after = text.split("barrier(sync, team", 1)
    racy = before + "//" + after
    report = weft.check(racy, pes=[2], seeds=3)
    assert not report
    assert any(f.code.startswith("S03") or f.code == "C001" for f in report)


def test_bad_requests():
    with pytest.raises(weft.CompileError):
        weft.check("kernel k() block(32) { x }")
    with pytest.raises(weft.ArgumentError, match="time_limit"):
        weft.check(WRONG, time_limit=-1)
    with pytest.raises(weft.Error, match="no parameter|unknown|M"):
        weft.check(WRONG, seeds=1, pes=[1], M=3)
