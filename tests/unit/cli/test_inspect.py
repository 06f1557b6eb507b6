import pytest

BROKEN = """
    from lexigram.app import Application
    from lexigram.di import Provider

    class Missing: ...
    class Other: ...

    class Desk:
        def __init__(self, token: Missing, other: Other) -> None: ...

    class DeskProvider(Provider):
        async def register(self, container):
            container.singleton(Desk)

    app = Application("broken", providers=[DeskProvider()])
"""


def test_modules_are_shown_in_import_order(lex, shop):
    lines = lex("inspect", "modules", shop).out.splitlines()
    assert [line.split()[0] for line in lines] == ["MODULE", "MailModule", "DeskModule", "app"]
    assert lines[2].split() == ["DeskModule", "MailModule", "desk", "Desk", "no"]


def test_modules_as_json_have_the_same_records_and_more(lex, shop):
    modules = lex("inspect", "modules", shop, "--json").data["modules"]
    assert [item["module"] for item in modules] == ["MailModule", "DeskModule", "app"]
    assert modules[1]["imports"] == ["MailModule"]
    assert modules[1]["site"].startswith("shop.py:")


def test_providers_are_shown_in_boot_order(lex, shop):
    lines = lex("inspect", "providers", shop).out.splitlines()
    assert lines[1].split() == ["1", "mail", "MailModule", "30", "yes", "mail"]
    assert lines[2].split() == ["2", "desk", "DeskModule", "30", "mail", "no"]


def test_providers_as_json(lex, shop):
    providers = lex("inspect", "providers", shop, "--json").data["providers"]
    assert [(item["level"], item["provider"]) for item in providers] == [(1, "mail"), (2, "desk")]
    assert providers[0]["class"] == "shop.MailProvider"
    assert providers[1]["dependencies"] == ["mail"]


def test_the_container_shows_every_binding(lex, shop):
    lines = lex("inspect", "container", shop).out.splitlines()
    rows = {line.split()[0]: line.split() for line in lines}
    assert rows["Mailer"][:4] == ["Mailer", "singleton", "MailModule", "mail"]
    assert rows["Mailer"][4].startswith("shop.py:")
    assert rows["Desk"][1] == "scoped"


def test_the_container_as_json(lex, shop):
    bindings = lex("inspect", "container", shop, "--json").data["bindings"]
    mailer = next(item for item in bindings if item["service"] == "Mailer")
    assert mailer["lifetime"] == "singleton"
    assert mailer["built"] is False


def test_one_binding_is_explained_also_a_private_one(lex, shop):
    text = lex("inspect", "container", shop, "MailConfig").out
    assert text.startswith("MailConfig  bound in MailModule  shop.py:")
    data = lex("inspect", "container", shop, "Desk", "--json").data
    assert data["service"] == "Desk"
    assert "mailer: Mailer" in data["explanations"][0]


def test_an_unknown_service_gets_near_matches(lex, shop):
    failed = lex("inspect", "container", shop, "Mailr")
    assert failed.code == 2
    assert "nothing is bound as Mailr" in failed.err
    assert "did you mean Mailer" in failed.err


def test_a_service_alone_is_looked_up_in_the_application_of_this_folder(lex, shop, write):
    write("pyproject.toml", '[tool.lexigram]\napp = "shop:app"\n')
    assert lex("inspect", "container", "Desk").out.startswith("Desk  bound in DeskModule")


@pytest.mark.parametrize(
    ("form", "of", "expected"),
    [
        ("mermaid", "objects", '-->|"mailer"|'),
        ("dot", "objects", '[label="mailer"];'),
        ("mermaid", "modules", '["DeskModule"]'),
        ("dot", "modules", '[label="DeskModule", shape=box];'),
    ],
)
def test_the_graph_is_drawn(lex, shop, form, of, expected):
    shown = lex("inspect", "graph", shop, "--format", form, "--of", of)
    assert shown.code == 0
    assert shown.out.startswith("flowchart LR" if form == "mermaid" else 'digraph "shop"')
    assert expected in shown.out


@pytest.mark.parametrize("of", ["modules", "objects"])
def test_the_graph_as_json_has_nodes_and_edges_between_them(lex, shop, of):
    data = lex("inspect", "graph", shop, "--format", "json", "--of", of).data
    ids = {node["id"] for node in data["nodes"]}
    assert data["edges"]
    assert all({edge["from"], edge["to"]} <= ids for edge in data["edges"])
    assert lex("--json", "inspect", "graph", shop, "--of", of).data == data


def test_the_module_graph_points_from_importer_to_imported(lex, shop):
    data = lex("inspect", "graph", shop, "--of", "modules", "--json").data
    names = {node["id"]: node["module"] for node in data["nodes"]}
    edges = [(names[edge["from"]], names[edge["to"]]) for edge in data["edges"]]
    assert edges == [("DeskModule", "MailModule"), ("app", "DeskModule")]


@pytest.mark.parametrize("what", ["providers", "container", "graph"])
def test_an_invalid_graph_is_shown_with_all_problems_and_its_own_exit_code(lex, write, what):
    write("broken.py", BROKEN)
    failed = lex("inspect", what, "broken:app")
    assert failed.code == 3
    assert "[LEX_ERR_DI_008]" in failed.err
    assert "token: Missing" in failed.err
    assert "other: Other" in failed.err
    assert failed.err.count("fix:") == 2


def test_an_invalid_graph_as_json_lists_the_problems(lex, write):
    write("broken.py", BROKEN)
    failed = lex("inspect", "container", "broken:app", "--json")
    assert failed.code == 3
    problems = failed.data["error"]["details"]["problems"]
    assert [item["code"] for item in problems] == ["LEX_ERR_DI_004", "LEX_ERR_DI_004"]
    assert failed.data["exit_code"] == 3


def test_the_modules_of_an_application_with_an_invalid_graph_can_still_be_seen(lex, write):
    write("broken.py", BROKEN)
    assert lex("inspect", "modules", "broken:app").code == 0


def test_a_format_that_does_not_exist_is_a_usage_error(lex, shop):
    assert lex("inspect", "graph", shop, "--format", "png").code == 2


def test_config_is_the_same_as_config_show(lex, shop):
    shown = lex("inspect", "config", shop)
    assert shown.out == lex("config", "show", shop).out
