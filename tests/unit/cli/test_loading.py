import pytest

from lexigram.app import Application
from lexigram.cli import CliError, TargetError
from lexigram.cli.loading import default_target, load_application
from lexigram.cli.values import parse_value


def refusal(target):
    with pytest.raises(TargetError) as caught:
        load_application(target)
    return caught.value


def test_an_application_is_found_in_the_current_folder(shop):
    assert load_application(shop).name == "shop"


def test_an_application_is_found_in_the_src_folder(write):
    write("src/depot/app.py", 'from lexigram.app import Application\napp = Application("depot")\n')
    assert load_application("depot.app:app").name == "depot"


def test_a_function_without_arguments_may_make_it(shop):
    assert isinstance(load_application("shop:create"), Application)


def test_without_a_target_pyproject_names_the_application(shop, write):
    write("pyproject.toml", '[tool.lexigram]\napp = "shop:app"\n')
    assert load_application(None).name == "shop"


def test_without_any_target_the_error_says_where_to_write_one(folder):
    error = refusal(None)
    assert error.message == "no application is named"
    assert "[tool.lexigram]" in error.hint


def test_a_broken_pyproject_is_named(write):
    write("pyproject.toml", "[tool\n")
    with pytest.raises(TargetError, match=r"pyproject\.toml cannot be read"):
        default_target()


def test_a_target_that_is_not_text_is_refused(write):
    write("pyproject.toml", "[tool.lexigram]\napp = 3\n")
    with pytest.raises(TargetError, match="is 3"):
        default_target()


def test_a_target_without_an_attribute_gets_the_attributes_that_fit(shop):
    error = refusal("shop")
    assert error.message == "'shop' names no application"
    assert error.hint == "did you mean shop:app or shop:create?"


def test_a_wrong_attribute_gets_the_attributes_that_fit(shop):
    error = refusal("shop:application")
    assert error.message == "shop has no application"
    assert error.hint == "did you mean shop:app or shop:create?"


def test_a_module_without_an_application_is_told_what_to_write(write):
    write("empty.py", "x = 1\n")
    assert refusal("empty:app").hint == (
        'empty has no application: write  app = Application("name")  there'
    )


def test_an_unknown_module_gets_the_nearest_one_here(shop):
    error = refusal("shap:app")
    assert error.message == "there is no module shap"
    assert "did you mean shop?" in error.hint


def test_an_unknown_module_with_nothing_near_lists_what_is_here(shop):
    assert "modules here: shop" in refusal("xyz:app").hint


def test_a_submodule_that_is_missing_counts_as_the_module(write):
    write("src/depot/__init__.py", "")
    assert refusal("depot.main:app").message == "there is no module depot.main"


def test_a_missing_import_inside_the_module_is_told_apart(write):
    write("broken.py", "import no_such_library\n")
    error = refusal("broken:app")
    assert error.message == "importing broken failed: there is no module no_such_library"
    assert "install the package that brings no_such_library" in error.hint


def test_an_error_inside_the_module_is_named(write):
    write("broken.py", "1 / 0\n")
    error = refusal("broken:app")
    assert error.message == "importing broken failed: ZeroDivisionError: division by zero"
    assert isinstance(error.cause, ZeroDivisionError)


@pytest.mark.parametrize(
    ("attribute", "reason"),
    [
        ("number", "is an object of type int"),
        ("needy", "is a function with arguments"),
        ("text", "returned an object of type str, not an Application"),
        ("later", "is an async function"),
    ],
)
def test_what_is_no_application_is_refused_by_its_kind(write, attribute, reason):
    write(
        "odd.py",
        """
        number = 3
        def needy(x): ...
        def text(): return "x"
        async def later(): ...
        """,
    )
    assert reason in refusal(f"odd:{attribute}").message


def test_a_target_without_a_module_is_refused(folder):
    assert "names no module" in refusal(":app").message


def test_an_error_of_the_factory_itself_is_not_swallowed(write):
    write("odd.py", "def create(): raise KeyError('x')\n")
    with pytest.raises(KeyError):
        load_application("odd:create")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = " + "[" * 5_000, "nested too deeply"),
        ("tool = 1\n", "is no table"),
        ("[tool]\nlexigram = [1]\n", "is no table"),
    ],
    ids=["deep", "tool", "section"],
)
def test_a_pyproject_with_something_else_in_its_place_is_an_error_of_ours(write, text, message):
    write("pyproject.toml", text)
    with pytest.raises(TargetError, match=message):
        load_application(None)


def test_a_value_is_json_or_text_and_nothing_that_python_cannot_read():
    assert [parse_value(text) for text in ('{"a": 1}', "3", "a=[", "")] == [{"a": 1}, 3, "a=[", ""]
    for text in ("[" * 200_000, "[" * 200 + "]" * 200, '{"a":' * 200 + "1" + "}" * 200):
        with pytest.raises(CliError, match=f"a value of {len(text)} characters is nested too deep"):
            parse_value(text)
