"""Property tests of layouts for arbitrary graphs."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from app.render.layout import Box, Layout, Net, lay_out
from app.render.layout.layers import assign_layers, build_skeleton, count_crossings, order_rows

Graph = tuple[list[tuple[float, float]], list[Net], frozenset[int]]


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Generate directed acyclic graphs of up to 24 boxes of any size."""
    count = draw(st.integers(0, 24))
    sides = st.tuples(st.integers(10, 300).map(float), st.integers(10, 90).map(float))
    sizes = draw(st.lists(sides, min_size=count, max_size=count))
    nets = []
    for source in range(count - 1):
        for _ in range(draw(st.integers(0, 2))):
            targets = draw(st.sets(st.integers(source + 1, count - 1), min_size=1, max_size=4))
            nets.append(Net(source, tuple(sorted(targets))))
    roots = draw(st.frozensets(st.integers(0, max(0, count - 1)), max_size=2)) if count else frozenset()
    return sizes, nets, roots


def overlap(a: Box, b: Box) -> bool:
    """Return whether boxes overlap by more than a rounding error."""
    across = min(a.x + a.width, b.x + b.width) - max(a.x, b.x)
    along = min(a.y + a.height, b.y + b.height) - max(a.y, b.y)
    return min(across, along) > 1e-6


def points(layout: Layout) -> list[tuple[float, float]]:
    return [point for route in layout.routes for stroke in route.strokes for point in stroke]


def chain(count: int) -> list[Net]:
    return [Net(i, (i + 1,)) for i in range(count - 1)]


def nested(count: int) -> list[Net]:
    """Return a chain with a skip from every node of its first half to its mirror image in the second."""
    return [*chain(count), *(Net(i, (count - 1 - i,)) for i in range(count // 2 - 1))]


@given(graphs())
def test_every_node_has_a_box_of_its_size_inside_the_drawing(graph: Graph) -> None:
    sizes, nets, roots = graph
    layout = lay_out(sizes, nets, roots)
    assert [(box.width, box.height) for box in layout.boxes] == sizes
    assert all(box.x > -0.01 and box.x + box.width < layout.width + 0.01 for box in layout.boxes)
    assert all(box.y >= 0 and box.y + box.height <= layout.height for box in layout.boxes)


@given(graphs())
def test_boxes_do_not_overlap(graph: Graph) -> None:
    boxes = lay_out(*graph).boxes
    assert not [(a, b) for i, a in enumerate(boxes) for b in boxes[:i] if overlap(a, b)]


@given(graphs())
def test_every_line_runs_downwards_from_box_to_box(graph: Graph) -> None:
    sizes, nets, roots = graph
    layout = lay_out(sizes, nets, roots)
    for net, route in zip(nets, layout.routes, strict=True):
        source = layout.boxes[net.source]
        assert route.strokes[0][0] == (source.x + source.width / 2, source.y + source.height)
        assert sorted(route.heads) == sorted(
            (layout.boxes[t].x + layout.boxes[t].width / 2, layout.boxes[t].y) for t in net.targets
        )
        assert all(
            y < below for stroke in route.strokes for (_, y), (_, below) in zip(stroke, stroke[1:], strict=False)
        )


@given(graphs())
def test_every_head_is_the_end_of_a_stroke(graph: Graph) -> None:
    for route in lay_out(*graph).routes:
        assert set(route.heads) == {stroke[-1] for stroke in route.strokes}


@given(graphs())
def test_sources_stand_in_layers_above_their_targets(graph: Graph) -> None:
    sizes, nets, roots = graph
    layers = assign_layers(len(sizes), nets, roots)
    assert all(layers[net.source] < layers[target] for net in nets for target in net.targets)
    assert sorted(set(layers)) == list(range(len(set(layers))))


@given(graphs())
def test_ordering_never_adds_crossings(graph: Graph) -> None:
    sizes, nets, roots = graph
    skeleton = build_skeleton(assign_layers(len(sizes), nets, roots), nets)
    before, members = count_crossings(skeleton), [sorted(row) for row in skeleton.rows]
    order_rows(skeleton)
    assert count_crossings(skeleton) <= before
    assert [sorted(row) for row in skeleton.rows] == members


@given(graphs())
@settings(max_examples=20)
def test_the_same_graph_is_drawn_the_same_way(graph: Graph) -> None:
    assert lay_out(*graph) == lay_out(*graph)


def test_a_chain_is_one_straight_column() -> None:
    layout = lay_out([(100.0 + 7 * i, 40.0) for i in range(20)], chain(20), [0])
    assert len({box.x + box.width / 2 for box in layout.boxes}) == 1
    assert all(len(stroke) == 2 for route in layout.routes for stroke in route.strokes)


def test_a_skip_bends_around_a_trunk_that_stays_straight() -> None:
    layout = lay_out([(100.0, 40.0)] * 5, [*chain(5), Net(0, (4,))], [0])
    assert len({box.x for box in layout.boxes}) == 1
    (skip,) = layout.routes[-1].strokes
    assert any(x < layout.boxes[0].x or x > layout.boxes[0].x + 100 for x, _ in skip)


def test_two_crossed_lines_are_uncrossed() -> None:
    nets = [Net(0, (3,)), Net(1, (2,))]
    skeleton = build_skeleton([0, 0, 1, 1], nets)
    skeleton.rows[1].sort()
    order_rows(skeleton)
    assert count_crossings(skeleton) == 0


def test_constants_stand_right_above_their_use() -> None:
    nets = [*chain(9), Net(9, (10,)), Net(10, (11,)), Net(8, (11,))]
    layers = assign_layers(12, nets, frozenset({0}))
    assert (layers[9], layers[10]) == (layers[11] - 2, layers[11] - 1)


def test_an_input_used_late_stays_on_top() -> None:
    nets = [Net(0, (2,)), Net(2, (3,)), Net(3, (4,)), Net(1, (4,))]
    assert assign_layers(5, nets, frozenset({0, 1}))[1] == 0


def test_lines_of_one_source_share_their_waypoints() -> None:
    nets = [*chain(50), Net(0, tuple(range(2, 50)))]
    skeleton = build_skeleton(assign_layers(50, nets, frozenset({0})), nets)
    assert len(skeleton.layer) - 50 == 48


def test_waypoints_stay_linear_in_the_nodes() -> None:
    nets = nested(1000)
    skeleton = build_skeleton(assign_layers(1000, nets, frozenset({0})), nets)
    assert len(skeleton.layer) - 1000 <= 7000
    assert any(skeleton.detours)


def test_detours_run_beside_all_boxes() -> None:
    layout = lay_out([(100.0, 40.0)] * 400, nested(400), [0])
    side = max(box.x + box.width for box in layout.boxes)
    around = [route for route in layout.routes if any(x > side for stroke in route.strokes for x, _ in stroke)]
    assert around
    assert all(x <= layout.width for x, _ in points(layout))


def test_an_empty_graph_has_an_empty_drawing() -> None:
    assert lay_out([], []) == Layout((), (), 0.0, 0.0)
