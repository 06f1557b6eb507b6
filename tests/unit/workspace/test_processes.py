"""A process forked for a test behaves as one that was started by `subprocess`."""

import os
import signal
import subprocess
import sys

import pytest
from tests import processes

PRELOADED = "import sys; print('lexigram.app' in sys.modules)"
both = pytest.mark.parametrize("run", [subprocess.run, processes.run], ids=["exec", "fork"])


def python(run, *words, **options):
    return run([sys.executable, *map(str, words)], capture_output=True, text=True, **options)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no subreapers")
def test_a_program_starts_with_the_product_imported():
    assert python(processes.run, "-c", PRELOADED).stdout == "True\n"


@pytest.mark.parametrize("flags", [["-I"], ["-X", "dev"]])
def test_a_program_with_flags_gets_an_interpreter_of_its_own(flags):
    assert python(processes.run, *flags, "-c", PRELOADED).stdout == "False\n"


def test_a_variable_of_the_interpreter_is_obeyed():
    env = {**os.environ, "PYTHONHASHSEED": "7"}
    printed = [
        python(run, "-c", "print(hash('a'))", env=env).stdout
        for run in (subprocess.run, processes.run)
    ]
    assert printed[0] == printed[1]


@both
@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("pass", 0),
        ("raise SystemExit", 0),
        ("raise SystemExit(3)", 3),
        ("raise SystemExit('no')", 1),
        ("raise ValueError", 1),
        ("raise KeyboardInterrupt", -signal.SIGINT),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),
        ("import atexit, os; atexit.register(os._exit, 4)", 4),
        ("import threading, os; threading.Timer(0.01, os._exit, [5]).start()", 5),
    ],
)
def test_the_exit_code_is_that_of_the_program(run, code, expected):
    assert python(run, "-c", code).returncode == expected


@both
def test_an_error_is_written_with_its_traceback(run):
    done = python(run, "-c", "raise ValueError('wrong')")
    assert done.stderr.splitlines()[-1] == "ValueError: wrong"


@both
def test_folder_environment_and_arguments_are_those_of_the_call(run, tmp_path):
    (tmp_path / "program.py").write_text(
        "import os, sys, beside\n"
        "assert __name__ == '__main__' and sys.modules['__main__'].os is os\n"
        "print(os.getcwd(), sys.argv, os.environ['COLOUR'], 'HOME' in os.environ)\n"
    )
    (tmp_path / "beside.py").touch()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    env = {name: value for name, value in os.environ.items() if name != "HOME"}
    env["COLOUR"] = "red"
    program = tmp_path / "program.py"
    done = python(run, program, "a", cwd=elsewhere, env=env)
    assert done.stdout == f"{elsewhere} ['{program}', 'a'] red False\n", done.stderr


@both
def test_modules_are_found_in_the_folder_and_on_the_path(run, tmp_path):
    for folder, name in [("here", "program"), ("there", "library")]:
        (tmp_path / folder).mkdir()
        (tmp_path / folder / f"{name}.py").write_text("print(__name__)\n")
    (tmp_path / "here" / "program.py").write_text("import library; print(__name__)\n")
    env = {**os.environ, "PYTHONPATH": str(tmp_path / "there")}
    done = python(run, "-m", "program", cwd=tmp_path / "here", env=env)
    assert done.stdout == "library\n__main__\n", done.stderr


@both
def test_the_program_reads_its_input_and_writes_its_output(run):
    code = "import sys; print(input()); print('seen', file=sys.stderr); sys.stdin.buffer.read()"
    done = python(run, "-c", code, input="line\nrest")
    assert (done.stdout, done.stderr) == ("line\n", "seen\n")


def test_a_signal_reaches_the_process_and_the_test_waits_for_it():
    code = "import os, signal; print(os.getpid(), os.getppid(), flush=True); signal.pause()"
    with processes.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == f"{process.pid} {os.getpid()}\n"
        process.terminate()
        assert process.wait(30) == -signal.SIGTERM


def test_a_process_may_have_a_session_of_its_own():
    code = "import os; print(os.getsid(0) == os.getpid())"
    options = {"stdout": subprocess.PIPE, "start_new_session": True}
    with processes.Popen([sys.executable, "-c", code], **options) as process:
        assert process.stdout.read() == b"True\n"


def test_a_program_that_takes_too_long_is_ended():
    with pytest.raises(subprocess.TimeoutExpired):
        python(processes.run, "-c", "import time; time.sleep(60)", timeout=0.1)
