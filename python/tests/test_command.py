import subprocess
import sys


def weft(*words, **options):
    return subprocess.run([sys.executable, "-m", "warpweft", *words], capture_output=True, text=True, timeout=240, **options)


def test_the_command_comes_with_the_package(tmp_path):
    assert weft("--version").stdout.startswith("weft ")
    assert weft("layout", "composition((4,8):(8,1),2:4)").stdout.strip() == "2:1"
    path = tmp_path / "k.weft"
    path.write_text("kernel k(x: global<f32, (64):(1)>) block(64) { let m = partition(x, threads()); m[_, 0] = m[_, 0] * 2; }")
    compiled = weft("compile", str(path))
    assert compiled.returncode == 0 and ".entry k" in compiled.stdout
    assert weft("run", str(path), "--pes", "2").returncode == 0


def test_a_fault_is_its_status():
    done = weft("compile", "no-such-file.weft")
    assert done.returncode == 1 and "no-such-file.weft" in done.stderr
    assert weft("no-such-command").returncode == 2


def test_importing_is_light():
    modules = "import sys, warpweft; print([m for m in ('torch', 'cupy', 'numpy') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", modules], capture_output=True, text=True).stdout.strip() == "[]"


def test_a_new_kernel_with_a_python_host(tmp_path):
    made = weft("new", "total", "--host", "python", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    folder = tmp_path / "total"
    for words, said in [(["host.py"], "PE 3: [10. 10. 10. 10.]"), (["-m", "pytest", "-q"], "2 passed")]:
        done = subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=240, cwd=folder)
        assert said in done.stdout, done.stdout + done.stderr
