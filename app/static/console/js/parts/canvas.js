// Graph that can be panned, zoomed and navigated by keyboard.
import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../html.js";
import { boundsOf, Drawing, LEVELS, READABLE } from "./drawing.js";
import { wrapped } from "./columns.js";
import { Minimap } from "./minimap.js";
import { View } from "./view.js";

const levelOf = (k) => LEVELS.filter((limit) => k >= limit).length;
const grown = ({ x, y, width, height }) => ({ x: x - width / 2, y: y - height / 2, width: 2 * width, height: 2 * height });
// A block unfolds when zoomed in until it takes this share of the window, and folds again when zoomed out.
const [NEAR, NEAR_SHARE] = [1.2, 0.3];
const NOTE_WIDTH = 56;
const holds = (outer, inner) => inner.x >= outer.x && inner.y >= outer.y && inner.x + inner.width <= outer.x + outer.width && inner.y + inner.height <= outer.y + outer.height;

// Next to a node in the direction of an arrow key.
function neighbour(layout, selected, key) {
  const at = layout.nodes.findIndex(({ id }) => id === selected);
  if (at < 0) return layout.nodes[0];
  const node = layout.nodes[at];
  if (key === "ArrowDown") return layout.nodes[layout.edges.find(({ source }) => source === at)?.targets[0]];
  if (key === "ArrowUp") return layout.nodes[layout.edges.find(({ targets }) => targets.includes(at))?.source];
  const isRight = key === "ArrowRight";
  const beside = layout.nodes.filter((each) => each !== node && Math.abs(each.y + each.height / 2 - node.y - node.height / 2) < 30 && (isRight ? each.x > node.x : each.x < node.x));
  return beside.sort((a, b) => Math.abs(a.x - node.x) - Math.abs(b.x - node.x))[0];
}

export function Canvas({ layout: given, selected, found, heat, notes, label, onPick, onToggle, onSearch, controls }) {
  const [size, setSize] = useState(null);
  const layout = useMemo(() => {
    const shown = wrapped(given, size);
    const width = shown.width + (notes ? NOTE_WIDTH : 0);
    return { ...shown, x: 0, y: 0, width, edges: shown.edges.map((edge) => ({ ...edge, bounds: boundsOf(edge) })) };
  }, [given, size, Boolean(notes)]);
  const [element, group, known] = [useRef(null), useRef(null), useRef(null)];
  const [scene, setScene] = useState({ seen: { x: 0, y: 0, width: 0, height: 0 }, level: LEVELS.length });
  const windows = useRef(new Set());
  const view = useMemo(() => new View((each) => {
    group.current?.setAttribute("transform", `translate(${each.x} ${each.y}) scale(${each.k})`);
    const seen = each.window();
    windows.current.forEach((listener) => listener(seen));
    setScene((old) => {
      const level = levelOf(each.k);
      return old.level === level && holds(old.seen, seen) && old.seen.width < 5 * seen.width ? old : { seen: grown(seen), level };
    });
  }), []);
  const box = layout;
  const measure = () => {
    const { width, height } = element.current.getBoundingClientRect();
    Object.assign(view, { width, height });
  };
  useEffect(() => view.attach(element.current), []);
  useLayoutEffect(() => {
    const observer = new ResizeObserver(() => {
      const before = [view.width, view.height];
      measure();
      if (view.isFitted) setSize({ width: view.width, height: view.height });
      if (view.isFitted) view.fit(known.current);
      else view.pan((view.width - before[0]) / 2, (view.height - before[1]) / 2);
    });
    observer.observe(element.current);
    return () => observer.disconnect();
  }, []);
  useLayoutEffect(() => {
    measure();
    if (!size) setSize({ width: view.width, height: view.height });
    const before = known.current;
    known.current = layout;
    const anchor = before?.anchor && layout.nodes.find(({ operators }) => operators.includes(before.anchor.operator));
    if (!before || before.name !== layout.name || (!before.anchor && before.columns !== layout.columns)) view.fit(box);
    else if (anchor) view.set(before.anchor.x - anchor.x * view.k, before.anchor.y - anchor.y * view.k, view.k);
    else view.fit(box, { glide: true });
    view.onChange(view);
  }, [layout]);
  useEffect(() => {
    const node = layout.nodes.find(({ id }) => id === selected);
    if (node) view.show(node);
  }, [selected, layout]);

  const toggle = (id) => {
    const node = layout.nodes.find((each) => each.id === id) ?? layout.open.find((each) => each.id === id);
    const first = node.operators?.[0] ?? Number(layout.nodes.find((each) => each.x >= node.x && each.y >= node.y)?.operators[0]);
    known.current = { ...layout, anchor: { operator: first, x: view.x + node.x * view.k, y: view.y + node.y * view.k } };
    onToggle(id);
  };
  const zoomed = useRef(new Set());
  view.onSettle = (x, y, isCloser) => {
    const [px, py] = [(x - view.x) / view.k, (y - view.y) / view.k];
    const near = layout.nodes.find((node) => node.kind === "fold" && px >= node.x && px <= node.x + node.width && py >= node.y && py <= node.y + node.height);
    if (isCloser && near && view.k >= NEAR && near.width * view.k >= NEAR_SHARE * view.width) {
      zoomed.current.add(near.id);
      toggle(near.id);
    } else if (!isCloser && view.k < READABLE) {
      const frame = layout.open.find(({ id }) => zoomed.current.has(id));
      if (frame && zoomed.current.delete(frame.id)) toggle(frame.id);
    }
  };
  const onKeyDown = (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const keys = { "+": () => view.zoom(1.3, undefined, undefined, true), "=": () => view.zoom(1.3, undefined, undefined, true), "-": () => view.zoom(1 / 1.3, undefined, undefined, true), 0: () => view.fit(box, { glide: true }), f: () => view.fit(box, { glide: true }), "/": onSearch, Escape: () => onPick(null) };
    const node = layout.nodes.find(({ id }) => id === selected);
    if (event.key.startsWith("Arrow")) {
      const next = neighbour(layout, selected, event.key);
      if (next) onPick(next);
    } else if (["Enter", " "].includes(event.key) && node?.kind === "fold") toggle(node.id);
    else if (keys[event.key]) keys[event.key]();
    else return;
    event.preventDefault();
  };
  const chosen = layout.nodes.find(({ id }) => id === selected);
  return html`<div class="canvas" >
    <svg ref=${element} class=${scene.level === LEVELS.length ? "plane" : "plane far"} tabindex="0" role="application" aria-label=${label} aria-describedby="canvas-help" onKeyDown=${onKeyDown} onClick=${(event) => event.target === element.current && onPick(null)}>
      <g ref=${group}><${Drawing} layout=${layout} ...${scene} selected=${selected} found=${found} heat=${heat} notes=${notes} onPick=${onPick} onToggle=${toggle} /></g>
    </svg>
    <p id="canvas-help" class="hidden">Arrow keys move between operators, Enter unfolds a block, plus and minus zoom, F shows the whole graph, slash searches.</p>
    <p class="hidden" role="status">${chosen ? [chosen.title, ...chosen.lines].join(", ") : ""}</p>
    <${Minimap} layout=${layout} view=${view} onWindow=${(listener) => { windows.current.add(listener); listener(view.window()); return () => windows.current.delete(listener); }} />
    <div class="zoomer panel" role="group" aria-label="Zoom">
      <button class="button quiet icon small" aria-label="Zoom in" onClick=${() => view.zoom(1.4, undefined, undefined, true)}>+</button>
      <button class="button quiet icon small" aria-label="Zoom out" onClick=${() => view.zoom(1 / 1.4, undefined, undefined, true)}>−</button>
      <button class="button quiet small" onClick=${() => view.fit(box, { glide: true })}>Fit</button>
      ${controls}
    </div>
  </div>`;
}
