"""The same nodes and edges as mermaid and as DOT, whatever their labels contain."""

from lexigram.diagram import Diagram, Edge, Group, Line, Node, Shape

DIAGRAM = Diagram(
    name='the "shop"',
    nodes=[
        Node(id="n0", label='say "hi"\nto é', shape=Shape.DIAMOND, status="done"),
        Node(id="n1", label="b", status="failed"),
        Node(id="n2", label="c", status="completed"),
    ],
    groups=[Group(label="Core", nodes=[Node(id="n3", label="d", shape=Shape.PILL)])],
    edges=[
        Edge(source="n0", target="n1", label='if "so"', line=Line.DASHED),
        Edge(source="n1", target="n2", line=Line.THICK),
        Edge(source="n2", target="n3"),
    ],
    direction="TB",
)


def test_mermaid():
    assert DIAGRAM.mermaid() == (
        "flowchart TB\n"
        '    n0{"say #quot;hi#quot; to é"}\n'
        '    n1["b"]\n'
        '    n2["c"]\n'
        '    subgraph m0["Core"]\n'
        '        n3(["d"])\n'
        "    end\n"
        '    n0 -.->|"if #quot;so#quot;"| n1\n'
        "    n1 ==> n2\n"
        "    n2 --> n3\n"
        "    classDef completed fill:#b7e1cd\n"
        "    classDef done fill:#b7e1cd\n"
        "    classDef failed fill:#f4b6b6\n"
        "    class n0 done\n"
        "    class n1 failed\n"
        "    class n2 completed\n"
    )


def test_dot():
    assert DIAGRAM.dot() == (
        'digraph "the \\"shop\\"" {\n'
        "    rankdir=TB;\n"
        '    n0 [label="say \\"hi\\"\\nto é", shape=diamond, style=filled, fillcolor="#b7e1cd"];\n'
        '    n1 [label="b", shape=box, style=filled, fillcolor="#f4b6b6"];\n'
        '    n2 [label="c", shape=box, style=filled, fillcolor="#b7e1cd"];\n'
        '    subgraph cluster_m0 { label="Core";\n'
        '        n3 [label="d", shape=oval];\n'
        "    }\n"
        '    n0 -> n1 [label="if \\"so\\"", style=dashed];\n'
        "    n1 -> n2 [style=bold];\n"
        "    n2 -> n3;\n"
        "}\n"
    )
