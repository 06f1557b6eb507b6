import pytest

from lexigram.cli.contributors import BaseCliContributor, Contributors
from lexigram.contracts.cli import CliContributorProtocol

TOOLS = """
    import typer
    from lexigram.cli.contributors import BaseCliContributor
    from lexigram.contracts.cli import CommandContribution

    class Contributor(BaseCliContributor):
        contributor_id = "{name}"

        def get_commands(self):
            return [
                CommandContribution("{command}", "Does {name} things.", "{name}_impl:create", "{name}")
            ]
"""
COMMANDS = """
    import typer

    def create():
        app = typer.Typer()

        @app.command()
        def hello(ctx: typer.Context, who: str, shout: bool = False):
            text = f"hello {who}"
            ctx.obj.output.text(text.upper() if shout else text, {"who": who})

        @app.command()
        def count(ctx: typer.Context):
            return 7

        @app.command()
        def leave():
            raise typer.Exit(42)

        return app
"""


@pytest.fixture
def tools(contribute, write):
    def install(name="tools", command="tools"):
        contribute(name, TOOLS.format(name=name, command=command))
        write(f"site/{name}_impl.py", COMMANDS)

    return install


def test_the_base_contributor_satisfies_the_contract_with_nothing():
    class MailCliContributor(BaseCliContributor):
        pass

    contributor = MailCliContributor()
    assert isinstance(contributor, CliContributorProtocol)
    assert contributor.contributor_id == "mail"
    assert [*contributor.get_commands(), *contributor.get_generators()] == []
    assert [*contributor.get_health_checks(), *contributor.get_doctor_checks()] == []
    assert [*contributor.get_shell_context()] == []


def test_a_contributed_command_is_listed_without_being_loaded(lex, contribute):
    contribute("tools", TOOLS.format(name="tools", command="tools"))  # there is no tools_impl
    shown = lex("--help")
    assert shown.code == 0
    assert "Extension commands:\n  tools  Does tools things.\n" in shown.out


def test_a_contributed_command_runs_and_takes_the_global_options(lex, tools):
    tools()
    assert lex("tools", "hello", "you").out == "hello you\n"
    assert lex("tools", "hello", "you", "--shout").out == "HELLO YOU\n"
    assert lex("tools", "hello", "you", "--json").data == {"who": "you"}
    assert lex("tools", "--json", "hello", "you").data == {"who": "you"}


def test_what_a_contributed_command_returns_is_not_its_exit_code(lex, tools):
    tools()
    assert lex("tools", "count").code == 0
    assert lex("tools", "leave").code == 42


def test_a_misspelt_contributed_command_gets_a_suggestion(lex, tools):
    tools()
    assert "Did you mean 'tools'?" in lex("tolls").err


def test_a_contributor_that_cannot_be_imported_is_a_warning_and_nothing_more(lex, contribute):
    contribute("broken", "import no_such_library\n")
    shown = lex("--help")
    assert shown.code == 0
    assert "inspect" in shown.out
    assert shown.err == (
        "warning: contributor broken is broken (ModuleNotFoundError: No module named "
        "'no_such_library'); `lexigram doctor` tells more\n"
    )


def test_built_in_commands_do_not_load_contributors(lex, contribute):
    contribute("broken", "1 / 0\n")
    assert lex("version").err == ""


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("def get_commands(self): raise KeyError('x')", "KeyError: 'x'"),
        ("def get_doctor_checks(self): return ['text']", "'text' is not a DoctorCheckContribution"),
        ("def __init__(self, needed): ...", "TypeError"),
    ],
)
def test_a_contributor_that_misbehaves_is_left_out_as_a_whole(tools, contribute, body, reason):
    tools()
    contribute(
        "wild",
        f"""
        from lexigram.cli.contributors import BaseCliContributor
        from lexigram.contracts.cli import ShellContextContribution

        class Contributor(BaseCliContributor):
            contributor_id = "wild"
            def get_shell_context(self):
                return [ShellContextContribution("w", "", "wild:w", "wild")]
            {body}
        """,
    )
    found = Contributors.discover()
    assert found.names == ("tools",)
    assert list(found.commands) == ["tools"]
    assert found.shell_context == {}
    (broken,) = found.broken
    assert broken.contributor == "wild"
    assert broken.source == "wild:Contributor"
    assert reason in broken.reason


def test_a_built_in_name_cannot_be_taken(lex, tools):
    tools("greedy", command="version")
    found = Contributors.discover()
    assert found.commands == {}
    (conflict,) = found.conflicts
    assert (conflict.kind, conflict.name) == ("command", "version")
    assert (conflict.winner, conflict.losers) == ("lexigram", ("greedy",))
    assert "lexigram 1.0.0" in lex("version").out


def test_of_two_that_want_one_name_the_first_by_name_keeps_it(tools):
    for name in ("cargo", "alpha", "bravo"):
        tools(name, command="ship")
    found = Contributors.discover()
    assert found.commands["ship"].contributor == "alpha"
    (conflict,) = found.conflicts
    assert (conflict.winner, conflict.losers) == ("alpha", ("bravo", "cargo"))


def test_an_id_can_be_used_once(contribute):
    source = TOOLS.format(name="tools", command="tools")
    contribute("one", source)
    contribute("two", source)
    found = Contributors.discover()
    assert found.names == ("tools",)
    assert found.broken[0].reason == "the id 'tools' is taken by another contributor"


def test_a_command_whose_code_is_missing_names_its_contributor(lex, contribute):
    contribute("tools", TOOLS.format(name="tools", command="tools"))
    failed = lex("tools", "hello")
    assert failed.code == 1
    assert "tools_impl:create, named by the contributor tools, cannot be loaded" in failed.err
    assert "caused by ModuleNotFoundError" in failed.err


def test_a_command_factory_that_makes_something_else_is_refused(lex, tools, write):
    tools()
    write("site/tools_impl.py", "def create(): return 3\n")
    failed = lex("tools", "--json")
    assert failed.code == 1
    assert failed.data["error"]["code"] == "LEX_ERR_CLI_003"
    assert "did not make a command" in failed.data["error"]["message"]


def test_a_typer_app_may_be_named_directly(lex, tools, write):
    tools()
    write(
        "site/tools_impl.py",
        """
        import typer
        create = typer.Typer()
        @create.command()
        def only(): print("hi")
        """,
    )
    assert lex("tools").out == "hi\n"


def test_a_command_of_click_gets_all_arguments_passed_on(lex, tools, write, capsys):
    pytest.importorskip("click")
    tools()
    write(
        "site/tools_impl.py",
        """
        import click
        @click.command()
        @click.option("--times", default=1)
        @click.argument("who")
        def create(times, who):
            click.echo("hi " * times + who)
            raise click.exceptions.Exit(5)
        """,
    )
    with pytest.raises(SystemExit) as left:
        lex("tools", "--times", "2", "you")
    assert left.value.code == 5
    assert capsys.readouterr().out == "hi hi you\n"


def test_options_of_a_click_command_are_its_own(lex, tools, write, capsys):
    pytest.importorskip("click")
    tools()
    write(
        "site/tools_impl.py",
        """
        import click
        @click.command()
        @click.option("--json", "form", default="none")
        def create(form): click.echo(form)
        """,
    )
    with pytest.raises(SystemExit):
        lex("tools", "--json", "mine")
    assert capsys.readouterr().out == "mine\n"


def test_an_option_of_the_command_itself_wins_over_the_global_one(lex, tools, write):
    tools()
    write(
        "site/tools_impl.py",
        """
        import typer
        create = typer.Typer()
        @create.command()
        def only(json: str = "none", query: str = typer.Option("all", "-q")): print(json, query)
        """,
    )
    assert lex("tools", "--json", "mine", "-q", "some").out == "mine some\n"


def test_a_command_that_needs_the_application_gets_it_loaded(lex, contribute, shop):
    contribute(
        "desk",
        """
        import typer
        from lexigram.cli.contributors import BaseCliContributor
        from lexigram.contracts.cli import CommandContribution

        class Contributor(BaseCliContributor):
            contributor_id = "desk"
            def get_commands(self):
                return [
                    CommandContribution(
                        "desk", "Desk work.", "desk:commands", "desk", requires_app_context=True
                    )
                ]

        commands = typer.Typer()

        @commands.command()
        def name(ctx: typer.Context):
            print(ctx.obj.application.name, ctx.obj.application.state.value)

        @commands.command()
        def other(ctx: typer.Context): ...
        """,
    )
    assert lex("desk", "name", "--app", shop).out == "shop created\n"
    assert lex("desk", "--app", shop, "name").out == "shop created\n"
    explained = lex("desk", "name", "--help").out
    assert "--app MODULE:APP" in explained
    assert "╭" not in explained  # rich would take 120 ms to draw boxes
    missing = lex("desk", "other")
    assert missing.code == 2
    assert "no application is named" in missing.err
