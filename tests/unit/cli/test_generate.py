import pytest

from lexigram.cli import CliError, ContributorError
from lexigram.cli.commands.generate import write_files


@pytest.fixture
def generators(contribute):
    contribute(
        "makers",
        """
        from lexigram.cli.contributors import BaseCliContributor
        from lexigram.contracts.cli import GeneratorDefinition

        def definition(name, path):
            return GeneratorDefinition(
                name, "A consumer", "With its test.", "makers", path,
                options={"topic_name": "What it listens to."}, default_output_dir="src/consumers",
            )

        class Contributor(BaseCliContributor):
            contributor_id = "makers"
            def get_generators(self):
                return [definition("consumer", "makers:Consumer"), definition("odd", "makers:Odd")]

        class Consumer:
            def generate(self, name, topic_name="all"):
                return {f"{name}.py": f"TOPIC = {topic_name!r}\\n", f"sub/{name}.txt": "x"}

        class Odd:
            def generate(self, name): return 3
        """,
    )


def test_without_a_name_the_generators_are_listed(lex, generators):
    shown = lex("generate")
    assert shown.out.splitlines()[1].split() == [
        *("consumer", "A", "consumer", "topic_name", "src/consumers", "makers")
    ]
    listed = lex("generate", "--json").data["generators"]
    assert [item["generator"] for item in listed] == ["consumer", "odd"]
    assert listed[0]["description"] == "With its test."


def test_without_any_generator_that_is_said(lex):
    assert lex("generate").out == "no generators\n"
    assert lex("--json", "generate").data == {"generators": []}


def test_a_generator_writes_its_files_into_its_own_folder(lex, generators, folder):
    made = lex("generate", "consumer", "orders", "--topic-name", "order.placed")
    assert made.code == 0
    assert made.out.splitlines() == ["src/consumers/orders.py", "src/consumers/sub/orders.txt"]
    text = (folder / "src/consumers/orders.py").read_text()
    assert text == "TOPIC = 'order.placed'\n"


def test_options_that_are_not_given_are_left_to_the_generator(lex, generators, folder):
    made = lex("generate", "consumer", "orders", "--output", "here", "--json")
    assert made.data == {
        "generator": "consumer",
        "files": ["here/orders.py", "here/sub/orders.txt"],
    }
    assert (folder / "here/orders.py").read_text() == "TOPIC = 'all'\n"


def test_files_that_are_there_are_kept_unless_forced(lex, generators, write):
    mine = write("src/consumers/orders.py", "mine")
    refused = lex("generate", "consumer", "orders")
    assert refused.code == 2
    assert "already there: src/consumers/orders.py" in refused.err
    assert mine.read_text() == "mine"
    assert not (mine.parent / "sub").exists()
    assert lex("generate", "consumer", "orders", "--force").code == 0
    assert mine.read_text() == "TOPIC = 'all'\n"


def test_an_unknown_generator_gets_a_suggestion(lex, generators):
    failed = lex("generate", "consumr", "orders")
    assert failed.code == 2
    assert "Did you mean 'consumer'?" in failed.err


def test_a_generator_explains_its_options(lex, generators):
    shown = lex("generate", "consumer", "--help").out
    assert "--topic-name" in shown
    assert "What it listens to." in shown
    assert "--json" in shown


def test_a_generator_that_returns_something_else_is_named(lex, generators):
    failed = lex("generate", "odd", "orders")
    assert failed.code == 1
    assert "the generator odd of makers returned int" in failed.err


def test_a_generator_cannot_write_outside_of_its_folder(folder):
    with pytest.raises(ContributorError, match="outside"):
        write_files({"../x.txt": "x"}, folder / "here", force=True)


def test_nothing_is_written_when_one_file_is_in_the_way(folder, write):
    write("here/b.txt", "mine")
    with pytest.raises(CliError):
        write_files({"a.txt": "x", "b.txt": "x"}, folder / "here", force=False)
    assert not (folder / "here/a.txt").exists()
