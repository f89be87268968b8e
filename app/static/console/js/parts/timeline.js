// Timeline of a run, one row per thread; hatched parts are waits for other threads.
import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../html.js";
import { percent, plural, time } from "../format.js";
import { familyOf } from "./families.js";
import { lanesOf, shownSpans, ticks, waitAfter } from "./spans.js";

const [LEFT, RIGHT, TOP, LANE, GAP] = [6, 6, 22, 34, 22];
const [NAME_FROM, BARRIER_FROM, ZOOM, LABEL_WIDTH] = [44, 7, 1.5, 50];

const clamp = (value, low, high) => Math.min(high, Math.max(low, value));
const describe = (span, steps) => `${span.row.name}, ${span.row.kernel}, thread ${span.thread}, ${time((span.end - span.begin) / 1e6)} from ${time(span.begin / 1e6)}, ${plural(span.chunks, "chunk")}, then waits ${time(waitAfter(span, steps) / 1e6)}`;

function useWidth(element) {
  const [width, setWidth] = useState(0);
  useLayoutEffect(() => {
    const observer = new ResizeObserver(([entry]) => setWidth(entry.contentRect.width));
    observer.observe(element.current);
    return () => observer.disconnect();
  }, []);
  return width;
}

// Visible part of the run: [from, to] in µs, changed by wheel, drag and keys.
function useWindow(total, element, width) {
  const [window, setWindow] = useState([0, total]);
  const state = useRef(null);
  state.current = { window, total, width };
  const show = (from, length) => {
    const kept = clamp(length, total / 5000, total);
    const begin = clamp(from, 0, total - kept);
    setWindow([begin, begin + kept]);
  };
  const zoom = (factor, share = 0.5) => {
    const [from, to] = state.current.window;
    show(from + (to - from) * share * (1 - 1 / factor), (to - from) / factor);
  };
  const pan = (share) => { const [from, to] = state.current.window; show(from + (to - from) * share, to - from); };
  useEffect(() => setWindow([0, total]), [total]);
  useEffect(() => {
    const onWheel = (event) => {
      const isAlong = Math.abs(event.deltaX) > Math.abs(event.deltaY);
      if (!event.ctrlKey && !event.metaKey && !event.shiftKey && !isAlong) return; // the page scrolls
      event.preventDefault();
      const box = element.current.getBoundingClientRect();
      if (isAlong || event.shiftKey) pan((isAlong ? event.deltaX : event.deltaY) / box.width);
      else zoom(Math.exp(-event.deltaY * 0.01), (event.clientX - box.left) / box.width);
    };
    element.current.addEventListener("wheel", onWheel, { passive: false });
    return () => element.current?.removeEventListener("wheel", onWheel);
  }, [total]);
  return { window, show, zoom, pan };
}

function Spans({ lane, steps, place, at, chosen, picked, onPick }) {
  return html`${lane.map((span) => {
    const width = Math.max(0.7, place(span.end) - place(span.begin) - 0.4);
    return html`<g key=${span.row.order} class=${`span family-${familyOf(span.row)}${span.row.name === picked ? " picked" : ""}${chosen?.row === span.row && chosen.thread === span.thread ? " chosen" : ""}`} onClick=${() => onPick(span)}>
      <rect x=${place(span.begin)} y=${at} width=${width} height=${LANE} rx=${width > 6 ? 3 : 0}><title>${describe(span, steps)}</title></rect>
      ${width > NAME_FROM && html`<text x=${Math.max(place(span.begin), LEFT) + 6} y=${at + LANE / 2 + 4}>${cut(span.row.name, place(span.end) - Math.max(place(span.begin), LEFT) - 10)}</text>`}
    </g>`;
  })}`;
}

const cut = (text, width) => (text.length * 6.3 <= width ? text : `${text.slice(0, Math.max(1, Math.floor(width / 6.3) - 1))}…`);

function Rows({ lanes, steps }) {
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Timeline as a table"><table class="kernels plain">
    <thead><tr>${["Operator", "Kernel", "Thread", "Start", "Duration", "Wait after", "Chunks"].map((title) => html`<th key=${title} scope="col">${title}</th>`)}</tr></thead>
    <tbody>${lanes.flatMap(({ spans }) => spans).sort((a, b) => a.begin - b.begin).map((span) => html`<tr key=${`${span.row.order} ${span.thread}`}>
      ${[span.row.name, span.row.kernel, span.thread, time(span.begin / 1e6), time((span.end - span.begin) / 1e6), time(waitAfter(span, steps) / 1e6), span.chunks].map((text, at) => html`<td key=${at} class=${at > 1 ? "number" : "mono"}>${text}</td>`)}</tr>`)}</tbody></table></div>`;
}

export function Timeline({ rows, picked, onPick }) {
  const { lanes, steps, total } = useMemo(() => lanesOf(rows), [rows]);
  const element = useRef(null);
  const width = useWidth(element);
  const { window: [from, to], show, zoom, pan } = useWindow(total, element, width);
  const [chosen, setChosen] = useState(null);
  const [isTable, setTable] = useState(false);
  const drag = useRef(null);
  useEffect(() => setChosen(null), [rows]);
  const inner = Math.max(1, width - LEFT - RIGHT);
  const place = (at) => LEFT + ((at - from) / (to - from)) * inner;
  const isAtEnd = (at) => place(at) > width - LABEL_WIDTH;
  const height = TOP + lanes.length * (LANE + GAP);
  const choose = (span) => {
    setChosen(span);
    onPick(span.row.name);
    if (span.begin < from || span.end > to) show((span.begin + span.end) / 2 - (to - from) / 2, to - from);
  };
  const walk = (key) => {
    const number = Math.max(0, lanes.findIndex(({ thread }) => thread === chosen?.thread));
    if (!chosen) return choose(lanes.find(({ spans }) => spans.length).spans[0]);
    if (key === "ArrowLeft" || key === "ArrowRight") {
      const { spans } = lanes[number];
      return choose(spans[clamp(spans.findIndex(({ row }) => row === chosen.row) + (key === "ArrowRight" ? 1 : -1), 0, spans.length - 1)]);
    }
    const { spans } = lanes[clamp(number + (key === "ArrowDown" ? 1 : -1), 0, lanes.length - 1)];
    return spans.length && choose(spans.find(({ row }) => row === chosen.row) ?? spans.find(({ end }) => end >= chosen.begin) ?? spans.at(-1));
  };
  // Zoom around the selection if it is visible.
  const closer = (factor) => zoom(factor, chosen && chosen.begin >= from && chosen.end <= to ? ((chosen.begin + chosen.end) / 2 - from) / (to - from) : 0.5);
  const onKeyDown = (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const keys = { "+": () => closer(ZOOM), "=": () => closer(ZOOM), "-": () => closer(1 / ZOOM), 0: () => show(0, total), f: () => show(0, total), PageDown: () => pan(0.8), PageUp: () => pan(-0.8), Home: () => show(0, to - from), End: () => show(total, to - from) };
    if (event.key.startsWith("Arrow")) walk(event.key);
    else if (keys[event.key]) keys[event.key]();
    else return;
    event.preventDefault();
  };
  const pointer = {
    onPointerDown: (event) => { drag.current = { x: event.clientX, from, moved: false }; },
    onPointerMove: (event) => {
      if (!drag.current || !event.buttons) return;
      const moved = event.clientX - drag.current.x;
      if (Math.abs(moved) > 4 && !drag.current.moved) { drag.current.moved = true; element.current.setPointerCapture(event.pointerId); }
      if (drag.current.moved) show(drag.current.from - (moved / inner) * (to - from), to - from);
    },
    onClickCapture: (event) => { if (drag.current?.moved) event.stopPropagation(); drag.current = null; },
  };
  return html`<div class="timeline">
    <div class="row"><p class="soft fine">Each bar is one thread's part of a kernel; hatched parts are waits for other threads. Drag to pan, Ctrl + wheel to zoom.</p>
      <div class="zoomer inline" role="group" aria-label="Zoom of the timeline">
        <button class="button quiet icon small" aria-label="Zoom in" onClick=${() => closer(ZOOM)}>+</button>
        <button class="button quiet icon small" aria-label="Zoom out" onClick=${() => closer(1 / ZOOM)}>−</button>
        <button class="button quiet small" onClick=${() => show(0, total)}>Fit</button>
        <button class="button quiet small" aria-pressed=${String(isTable)} onClick=${() => setTable(!isTable)}>Table</button>
      </div></div>
    <svg ref=${element} class="lanes" height=${height} tabindex="0" role="application" aria-label=${`Timeline of ${plural(lanes.length, "thread")}, ${time(total / 1e6)}`} aria-describedby="timeline-help" onKeyDown=${onKeyDown} ...${pointer}>
      <defs><pattern id="waits" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect class="ground" width="6" height="6" /><path class="hatch" d="M0 0V6" /></pattern></defs>
      ${width > 0 && html`
        ${ticks(from, to, Math.max(2, width / 150)).map((at) => html`<g key=${at} class="tick"><path d=${`M${place(at)} ${TOP - 4}V${height}`} /><text x=${place(at) + (isAtEnd(at) ? -4 : 4)} y=${TOP - 9} text-anchor=${isAtEnd(at) ? "end" : "start"}>${time(at / 1e6)}</text></g>`)}
        ${lanes.map(({ thread, spans, busy }, number) => {
          const at = TOP + number * (LANE + GAP);
          return html`<g key=${thread}>
            <rect class="track" x=${place(Math.max(0, from))} y=${at} width=${place(Math.min(total, to)) - place(Math.max(0, from))} height=${LANE} rx="3" fill="url(#waits)" />
            <${Spans} lane=${shownSpans(spans, from, to, inner)} steps=${steps} place=${place} at=${at} chosen=${chosen} picked=${picked} onPick=${choose} />
            <text class="name" x=${LEFT} y=${at + LANE + 14}>thread ${thread}${thread === 0 ? " (caller)" : ""} · busy ${percent(busy / total)}</text></g>`;
        })}
        ${steps.length * BARRIER_FROM < inner * (total / (to - from)) && steps.filter(({ end }) => end >= from && end <= to).map(({ row, end }) => html`<path key=${row.order} class="barrier" d=${`M${place(end)} ${TOP - 3}V${height - GAP + 3}`} />`)}`}
    </svg>
    <p id="timeline-help" class="hidden">Left and right move between kernels, up and down between threads, plus and minus zoom, page keys pan, F shows the whole run. The Table button shows the same data as a table.</p>
    <p class="reading mono" role="status">${chosen ? describe(chosen, steps) : " "}</p>
    ${isTable && html`<${Rows} lanes=${lanes} steps=${steps} />`}
  </div>`;
}
