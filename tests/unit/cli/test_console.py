import pytest

from lexigram.app import Application, AppState
from lexigram.cli import Output
from lexigram.cli.console import talk
from lexigram.cli.contributors import Contributors
from lexigram.contracts.cli import ShellContextContribution
from lexigram.di import Provider


class Greeter:
    def greet(self):
        return "hello"


class GreetingProvider(Provider):
    async def register(self, container):
        container.singleton(Greeter, factory=self.make)

    async def make(self) -> Greeter:
        return Greeter()


@pytest.fixture
def typed(monkeypatch, capsys):
    """Type lines at the prompt of an application; what was printed, and the application."""

    def type_lines(*lines, contributors=None, output=None):
        pending = iter(lines)

        def read(prompt=""):
            try:
                return next(pending)
            except StopIteration:
                raise EOFError from None

        monkeypatch.setattr("builtins.input", read)
        app = Application("shop", providers=[GreetingProvider()])
        try:
            talk(app, contributors or Contributors(), output or Output())
        finally:
            type_lines.app = app
        return capsys.readouterr()

    return type_lines


def test_await_works_at_the_prompt_and_names_stay(typed):
    printed = typed(
        "from lexigram.di import Container",
        "import anyio",
        "await anyio.sleep(0)",
        "x = app.state.value",
        "x",
        "isinstance(container, Container)",
    )
    assert printed.out == "'running'\nTrue\n"
    assert typed.app.state is AppState.STOPPED


def test_the_banner_names_what_there_is_and_quiet_leaves_it_out(typed):
    assert "shop is running; await works here, Ctrl-D stops it." in typed().err
    assert typed(output=Output(quiet=True)).err.strip() == ""


def test_an_error_shows_only_what_was_typed_and_the_prompt_goes_on(typed):
    printed = typed("def f(): 1 / 0", "", "f()", "2 + 2")
    assert printed.out == "4\n"
    lines = [line.strip() for line in printed.err.splitlines() if "File" in line]
    assert lines == ['File "<console>", line 1, in <module>', 'File "<console>", line 1, in f']
    assert "ZeroDivisionError" in printed.err


def test_exit_stops_the_application_and_keeps_its_code(typed):
    with pytest.raises(SystemExit) as left:
        typed("raise SystemExit(5)", "print('not reached')")
    assert left.value.code == 5
    assert typed.app.state is AppState.STOPPED


def test_ctrl_c_at_the_prompt_gives_a_new_prompt(monkeypatch, capsys):
    answers = iter([KeyboardInterrupt, "1 + 1", EOFError])

    def read(prompt=""):
        answer = next(answers)
        if isinstance(answer, type):
            raise answer
        return answer

    monkeypatch.setattr("builtins.input", read)
    talk(Application("shop"), Contributors(), Output(quiet=True))
    printed = capsys.readouterr()
    assert printed.out == "2\n"
    assert "KeyboardInterrupt" in printed.err


def test_contributed_names_are_there_and_a_broken_one_is_left_out(
    typed, write, folder, monkeypatch
):
    write(
        "names.py",
        """
        def plain(container): return type(container).__name__
        async def later(container): return "later"
        def broken(container): raise KeyError("x")
        """,
    )
    monkeypatch.syspath_prepend(str(folder))
    items = {
        name: ShellContextContribution(name, f"The {name} one.", f"names:{name}", "names")
        for name in ("plain", "later", "broken")
    }
    printed = typed("plain", "later", contributors=Contributors(shell_context=items))
    assert printed.out == "'Container'\n'later'\n"
    assert "  later  The later one." in printed.err
    assert "warning: broken of names is left out: KeyError: 'x'" in printed.err
