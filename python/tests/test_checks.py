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


def test_races_have_both_accesses_and_their_places():
    text = """
    kernel race(x: symm<u32, (2):(1)>, team: team) block(32) {
        if thread_idx() == 0 { peer(x, 0)[0] = my_pe(team).to<u32>(); }
    }"""
    report = weft.check(text, pes=[2], seeds=3)
    assert not report
    race = next(f for f in report if f.code.startswith("S03"))
    assert {a["pe"] for a in race.accesses} == {0, 1} and race.accesses[0]["source"]["line"] == 3
    assert "kernel.weft:3" in str(race) and race.help


def test_bad_requests():
    with pytest.raises(weft.CompileError):
        weft.check("kernel k() block(32) { x }")
    with pytest.raises(weft.ArgumentError, match="time_limit"):
        weft.check(WRONG, time_limit=-1)
    with pytest.raises(weft.Error, match="no parameter|unknown|M"):
        weft.check(WRONG, seeds=1, pes=[1], M=3)
