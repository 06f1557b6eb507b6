"""The real ``lexigram`` script in processes of its own."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest
from tests import processes
from tests.processes import Popen

SCRIPTS = Path(sys.executable).parent
SECONDS = 120  # a guard against hanging, not a promise


def environment(**extra):
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("LEX_", "PYTEST", "COV"))}
    return {**kept, "PATH": f"{SCRIPTS}{os.pathsep}{kept.get('PATH', '')}", **extra}


@pytest.fixture
def lexigram(tmp_path):
    def run(*arguments, cwd=tmp_path, script="lexigram", stdin="", **variables):
        return processes.run(
            [SCRIPTS / script, *arguments],
            cwd=cwd,
            env=environment(**variables),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )

    return run


@pytest.fixture(scope="module")
def made_once(tmp_path_factory):
    folder = tmp_path_factory.mktemp("new")
    command = [SCRIPTS / "lexigram", "new", "depot"]
    processes.run(command, cwd=folder, env=environment(), check=True, capture_output=True)
    return folder / "depot"


@pytest.fixture
def depot(made_once, tmp_path):
    """The folder of a new application, each test its own."""
    return shutil.copytree(made_once, tmp_path / "depot")


@pytest.fixture
def write(tmp_path):
    def write(path, text):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(dedent(text), encoding="utf-8")

    return write


@pytest.fixture
def start(depot):
    """Start ``lexigram run`` and wait until the application says that it runs."""
    started = []

    def start(*arguments, cwd=depot, **variables):
        process = Popen(
            [SCRIPTS / "lexigram", "run", *arguments],
            cwd=cwd,
            env=environment(**variables),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        lines = []
        for line in process.stderr:
            lines.append(line)
            if " started" in line:
                break
        return process, lines

    yield start
    for process in started:
        process.kill()
        process.communicate(timeout=SECONDS)


@pytest.mark.promise
def test_a_new_application_passes_its_own_test(depot):
    done = processes.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=depot,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout


@pytest.mark.promise
@pytest.mark.parametrize("arguments", [("depot.app:app",), ("depot.app:create",), ()])
def test_a_new_application_runs_and_drains_on_sigterm(start, arguments):
    process, lines = start(*arguments)
    assert any("Hello, world!" in line for line in lines)
    process.send_signal(signal.SIGTERM)
    _, rest = process.communicate(timeout=SECONDS)
    assert process.returncode == 0
    assert "depot stopped" in rest


def test_ctrl_c_drains_too(start):
    process, _ = start()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=SECONDS)
    assert process.returncode == 0


def test_a_boot_prints_at_most_three_lines(start):
    process, lines = start()
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=SECONDS)
    assert len(lines) <= 3
    assert out == ""


def test_run_with_json_logs_one_object_a_line(start):
    process, lines = start("--json")
    process.send_signal(signal.SIGTERM)
    _, rest = process.communicate(timeout=SECONDS)
    records = [json.loads(line) for line in [*lines, *rest.splitlines()]]
    assert "Hello, world!" in [record["message"] for record in records]


def test_settings_reach_the_running_application(start):
    process, lines = start(LEX_GREETING__WORD="Ahoy")
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=SECONDS)
    assert any("Ahoy, world!" in line for line in lines)


def test_run_with_wrong_settings_exits_with_2_and_every_problem(lexigram, depot):
    failed = lexigram("run", cwd=depot, LEX_GREETING__WRD="x", LEX_DEBUG="perhaps")
    assert failed.returncode == 2
    assert "2 problems in the configuration" in failed.stderr
    assert "LEX_GREETING__WRD" in failed.stderr
    assert "LEX_DEBUG" in failed.stderr
    assert "Traceback" not in failed.stderr


def test_run_with_an_invalid_graph_exits_with_3(lexigram, write):
    write(
        "odd.py",
        """
        from lexigram.app import Application
        from lexigram.di import Provider

        class Missing: ...
        class Desk:
            def __init__(self, missing: Missing) -> None: ...
        class DeskProvider(Provider):
            async def register(self, container): container.singleton(Desk)

        app = Application("odd", providers=[DeskProvider()])
        """,
    )
    failed = lexigram("run", "odd:app")
    assert failed.returncode == 3
    assert "missing: Missing" in failed.stderr
    assert lexigram("run", "odd:app", "--json").returncode == 3


BOOT = """
    from lexigram.app import Application
    from lexigram.contracts.core.health import HealthCheckResult, HealthStatus
    from lexigram.di import Provider

    class Failing(Provider):
        async def boot(self, container):
            raise OSError("cannot reach postgres://joe:hunter2@db")

    class Sick(Provider):
        async def health_check(self, timeout=5.0):
            return HealthCheckResult("sick", HealthStatus.UNHEALTHY, "no pulse")

    def failing(): return Application("odd", providers=[Failing()])
    def optional(): return Application("odd", providers=[Failing(required=False)])
    def sick(): return Application("odd", providers=[Sick()])
"""


def test_run_with_a_failing_boot_exits_with_1_and_names_the_provider(lexigram, write):
    write("odd.py", BOOT)
    failed = lexigram("run", "odd:failing")
    assert failed.returncode == 1
    assert 'provider "failing"' in failed.stderr
    assert "caused by OSError" in failed.stderr
    assert "hunter2" not in failed.stderr
    assert "Traceback" not in failed.stderr
    shown = lexigram("run", "odd:failing", "--debug")
    assert "Traceback" in shown.stderr
    assert "hunter2" not in shown.stderr


def test_health_of_a_sound_application(lexigram, depot):
    shown = lexigram("inspect", "health", cwd=depot)
    assert shown.returncode == 0
    assert shown.stdout.splitlines()[1].split()[:2] == ["greeting", "healthy"]
    data = json.loads(lexigram("inspect", "health", "--json", cwd=depot).stdout)
    assert data["status"] == "healthy"
    assert data["components"][0]["component"] == "greeting"


def test_an_unhealthy_application_exits_with_4(lexigram, write):
    write("odd.py", BOOT)
    failed = lexigram("inspect", "health", "odd:sick")
    assert failed.returncode == 4
    assert "no pulse" in failed.stdout
    data = json.loads(lexigram("inspect", "health", "odd:sick", "--json").stdout)
    assert data["status"] == "unhealthy"


def test_a_degraded_application_exits_with_0(lexigram, write):
    write("odd.py", BOOT)
    shown = lexigram("inspect", "health", "odd:optional", "--json")
    assert shown.returncode == 0
    assert json.loads(shown.stdout)["status"] == "degraded"
    assert "hunter2" not in shown.stdout + shown.stderr


@pytest.mark.parametrize(
    "command",
    [
        *(f"inspect {what}" for what in ("modules", "providers", "container", "config", "health")),
        *("inspect graph", "inspect graph --of modules", "inspect container Greeter"),
        *("config show", "config validate", "config env", "doctor", "version", "generate"),
    ],
)
def test_every_result_has_a_json_twin(lexigram, depot, command):
    plain = lexigram(*command.split(), cwd=depot)
    assert plain.returncode == 0, plain.stderr
    assert plain.stdout
    twin = lexigram(*command.split(), "--json", cwd=depot)
    assert twin.returncode == 0
    assert isinstance(json.loads(twin.stdout), dict)
    assert twin.stderr == ""


def test_both_graphs_are_drawn_in_every_format(lexigram, depot):
    for of in ("modules", "objects"):
        for form, start in (("mermaid", "flowchart"), ("dot", "digraph"), ("json", "{")):
            drawn = lexigram("inspect", "graph", "--of", of, "--format", form, cwd=depot)
            assert drawn.returncode == 0
            assert drawn.stdout.startswith(start)


def test_secrets_appear_nowhere(lexigram, depot):
    text = (depot / "src/depot/greeting.py").read_text()
    text = text.replace("    word: str = field(", '    token: str = ""\n    word: str = field(')
    (depot / "src/depot/greeting.py").write_text(text)
    (depot / "application.yaml").write_text("greeting:\n  token: hunter2\n")
    for command in ("config show", "config validate", "config env", "inspect config", "doctor"):
        for flag in ("--json", "--debug"):
            shown = lexigram(*command.split(), flag, cwd=depot, LEX_GREETING__TOKEN="hunter3")
            assert shown.returncode == 0, shown.stderr
            assert "hunter" not in shown.stdout + shown.stderr
    failed = lexigram("config", "validate", cwd=depot, LEX_GREETING__TOKN="hunter4")
    assert failed.returncode == 2
    assert "hunter" not in failed.stdout + failed.stderr


def test_a_wrong_target_is_explained_without_a_traceback(lexigram, depot):
    failed = lexigram("run", "depot.app:application", cwd=depot)
    assert failed.returncode == 2
    assert failed.stderr == (
        "error: [LEX_ERR_CLI_002] depot.app has no application\n"
        "→ Fix: did you mean depot.app:app or depot.app:create?\n"
    )


def test_the_shell_talks_to_a_running_application(lexigram, depot):
    typed = "from depot.greeting import Greeter\n(await container.resolve(Greeter)).greet('you')\n"
    done = lexigram("shell", "-q", cwd=depot, stdin=typed)
    assert done.returncode == 0, done.stderr
    assert "'Hello, you!'" in done.stdout


def test_ctrl_c_in_the_shell_ends_what_was_typed_and_nothing_else(depot):
    shell = Popen(
        [SCRIPTS / "lexigram", "shell", "-q"],
        cwd=depot,
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    nap = "async def nap():\n    print('zzz', flush=True)\n    await anyio.sleep_forever()\n"
    shell.stdin.write(f"import anyio\n{nap}\nawait nap()\n")
    shell.stdin.flush()
    while "zzz" not in shell.stdout.readline():
        pass
    shell.send_signal(signal.SIGINT)
    out, err = shell.communicate("print(app.state.value)\n", timeout=SECONDS)
    assert shell.returncode == 0, err
    assert "running" in out
    assert "KeyboardInterrupt" in err


def install(tmp_path, name, source):
    """A package on the path with metadata, as an installer would leave it behind."""
    site = tmp_path / "site"
    metadata = site / f"{name}-1.0.dist-info"
    metadata.mkdir(parents=True)
    (site / f"{name}.py").write_text(dedent(source))
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(
        f"[lexigram.cli.contributors]\n{name} = {name}:Contributor\n"
    )
    return {"PYTHONPATH": os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")])}


def test_a_broken_contributor_is_one_warning_and_a_finding_of_the_doctor(lexigram, tmp_path):
    path = install(tmp_path, "broken", "import no_such_library\n")
    shown = lexigram("--help", **path)
    assert shown.returncode == 0
    assert "Commands:" in shown.stdout
    assert len(shown.stderr.splitlines()) == 1
    assert "contributor broken is broken" in shown.stderr
    examined = lexigram("doctor", "--json", **path)
    assert examined.returncode == 1
    rows = {row["check"]: row for row in json.loads(examined.stdout)["checks"]}
    assert rows["contributors"]["status"] == "error"
    assert "no_such_library" in rows["contributors"]["message"]
    assert lexigram("version", **path).stderr == ""


def test_a_contributor_adds_a_command_that_uses_the_running_application(lexigram, depot, tmp_path):
    path = install(
        tmp_path,
        "hello",
        """
        from lexigram.cli.contributors import BaseCliContributor
        from lexigram.contracts.cli import CommandContribution, HealthCheckContribution

        class Contributor(BaseCliContributor):
            contributor_id = "hello"
            def get_commands(self):
                return [
                    CommandContribution(
                        "hello", "Greet.", "hello:commands", "hello", requires_app_context=True
                    )
                ]
            def get_health_checks(self):
                return [HealthCheckContribution("moon", "hello:moon", "hello", critical=True)]

        def commands():
            import typer
            app = typer.Typer()

            @app.command()
            def greet(ctx: typer.Context, who: str) -> None:
                from depot.greeting import Greeter

                async def say(greeter: Greeter) -> str:
                    return greeter.greet(who)

                text = ctx.obj.run(say)
                ctx.obj.output.text(text, {"greeting": text})

            return app

        async def moon():
            raise OSError("too far")
        """,
    )
    assert lexigram("hello", "you", cwd=depot, **path).stdout == "Hello, you!\n"
    twin = lexigram("hello", "you", "--json", cwd=depot, **path)
    assert json.loads(twin.stdout) == {"greeting": "Hello, you!"}
    asked = lexigram("inspect", "health", "--json", cwd=depot, **path)
    assert asked.returncode == 4
    components = {row["component"]: row for row in json.loads(asked.stdout)["components"]}
    assert components["moon"]["error"] == "OSError: too far"


def test_lex_is_the_same_command(lexigram):
    assert lexigram("version", script="lex").stdout == lexigram("version").stdout
    assert lexigram("--help", script="lex").stdout.startswith("Usage: lex ")


def test_a_reader_that_goes_away_is_no_traceback(depot):
    done = processes.run(
        f"{SCRIPTS}/lexigram config env | true",
        shell=True,
        cwd=depot,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert "Traceback" not in done.stderr


def test_output_that_the_terminal_cannot_show_is_replaced(lexigram):
    failed = lexigram("run", "nowhere:app", PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert failed.returncode == 2
    assert "? Fix: " in failed.stderr


def test_the_shell_of_the_user_completes_commands(lexigram):
    offered = lexigram(
        _LEXIGRAM_COMPLETE="complete_bash", COMP_WORDS="lexigram ins", COMP_CWORD="1"
    )
    assert offered.stdout.split() == ["inspect"]
