// Memory plan of a run: kernels from left to right, addresses from bottom to top.
import { html, useMemo, useRef, useState } from "../html.js";
import { bytes, plural, port } from "../format.js";
import { ticks } from "./spans.js";

const [WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM] = [1120, 300, 74, 10, 26, 34];

function buffersOf(profile, graph) {
  const steps = (profile.kernels.length ? profile.kernels.map(({ operators }) => operators[0]) : profile.operators.map(({ name }) => name));
  return profile.buffers.map((buffer, at) => {
    const named = buffer.operands.filter((name) => graph.operands[name]);
    const maker = graph.operands[named[0]]?.producer ?? steps[buffer.first];
    return { ...buffer, at, maker, from: steps[buffer.first], until: steps[buffer.last] ?? "the end", named };
  });
}

// Bytes in use at each step.
function alive(buffers, count) {
  const sums = Array(count + 1).fill(0);
  for (const { first, last, bytes: size } of buffers) for (let at = first; at <= Math.min(last, count); at += 1) sums[at] += size;
  return sums;
}

const about = (buffer, graph) => `${buffer.named.length ? buffer.named.map((name) => `${name} ${port(graph.operands[name])}`).slice(0, 3).join(", ") : "scratch of a kernel"}, ${bytes(buffer.bytes)}, from ${buffer.from} to ${buffer.until}`;

// Neighbour of a buffer for an arrow key: next in time, or above and below at the same time.
function neighbour(buffers, chosen, key) {
  if (!chosen) return buffers[0];
  const isTime = key === "ArrowLeft" || key === "ArrowRight";
  const sign = key === "ArrowRight" || key === "ArrowUp" ? 1 : -1;
  const order = isTime ? (a) => a.first * 1e12 + a.offset : (a) => a.offset;
  const others = buffers.filter((each) => each !== chosen && (isTime || (each.first <= chosen.last && chosen.first <= each.last)) && sign * (order(each) - order(chosen)) > 0);
  return others.sort((a, b) => sign * (order(a) - order(b)))[0] ?? chosen;
}

export function Arena({ profile, graph, picked, onPick }) {
  const buffers = useMemo(() => buffersOf(profile, graph).sort((a, b) => a.first - b.first), [profile, graph]);
  const [chosen, setChosen] = useState(null);
  const [hovered, setHovered] = useState(null);
  const [isTable, setTable] = useState(false);
  const element = useRef(null);
  const count = (profile.kernels.length || profile.operators.length);
  const high = Math.max(1, ...buffers.map(({ offset, bytes: size }) => offset + size));
  const sums = useMemo(() => alive(buffers, count), [buffers]);
  const most = Math.max(...sums);
  const [px, py] = [(step) => LEFT + (step / count) * (WIDTH - LEFT - RIGHT), (at) => HEIGHT - BOTTOM - (at / high) * (HEIGHT - TOP - BOTTOM)];
  const choose = (buffer) => { setChosen(buffer); onPick(buffer.maker); };
  const onKeyDown = (event) => {
    if (!event.key.startsWith("Arrow")) return;
    event.preventDefault();
    choose(neighbour(buffers, chosen, event.key));
  };
  const shown = hovered ?? chosen;
  return html`<div class="arena">
    <div class="row"><p class="soft fine">${plural(buffers.length, "buffer")} in ${bytes(high)}; peak ${bytes(most)} at ${(profile.kernels[sums.indexOf(most)]?.operators ?? [profile.operators[sums.indexOf(most)]?.name])[0]}. Without reuse they would take ${bytes(buffers.reduce((sum, { bytes: size }) => sum + size, 0))}.</p>
      <div class="zoomer inline"><button class="button quiet small" aria-pressed=${String(isTable)} onClick=${() => setTable(!isTable)}>Table</button></div></div>
    <div class="scroll wide"><svg ref=${element} class="plan" viewBox=${`0 0 ${WIDTH} ${HEIGHT}`} tabindex="0" role="application" aria-label=${`Memory over ${plural(count, "kernel")}, ${bytes(high)}`} aria-describedby="arena-help" onKeyDown=${onKeyDown} onPointerLeave=${() => setHovered(null)}>
      ${ticks(0, high, 6).map((at) => html`<g key=${at} class="tick"><path d=${`M${LEFT} ${py(at)}H${WIDTH - RIGHT}`} /><text x=${LEFT - 8} y=${py(at) + 4} text-anchor="end">${bytes(at) || "0"}</text></g>`)}
      ${ticks(0, count, 10).filter((at) => Number.isInteger(at)).map((at) => html`<text key=${at} class="count" x=${px(at)} y=${HEIGHT - BOTTOM + 16} text-anchor="middle">${at}</text>`)}
      <text class="count" x=${(WIDTH + LEFT) / 2} y=${HEIGHT - 3} text-anchor="middle">${profile.kernels.length ? "kernels" : "operators"} in execution order</text>
      ${buffers.map((buffer) => html`<rect key=${buffer.at} class=${`buffer family-${buffer.family}${buffer.named.length ? "" : " own"}${buffer.maker === picked ? " picked" : ""}${buffer === shown ? " chosen" : ""}`} x=${px(buffer.first) + 0.5} y=${py(buffer.offset + buffer.bytes)} width=${Math.max(1, px(Math.min(count, buffer.last + 1)) - px(buffer.first) - 1)} height=${Math.max(0.8, py(buffer.offset) - py(buffer.offset + buffer.bytes) - 0.6)} rx="1.5"
        onClick=${() => choose(buffer)} onPointerEnter=${() => setHovered(buffer)}><title>${about(buffer, graph)}</title></rect>`)}
      <path class="alive" d=${sums.slice(0, count).map((sum, at) => `${at ? "H" : "M"}${px(at)}${at ? "V" : " "}${py(sum)}`).join("") + `H${px(count)}`} />
      <path class="peak" d=${`M${LEFT} ${py(most)}H${WIDTH - RIGHT}`} /><text class="peak-name" x=${WIDTH - RIGHT} y=${py(most) - 5} text-anchor="end">peak ${bytes(most)}</text>
    </svg></div>
    <p id="arena-help" class="hidden">Arrow keys move between buffers: left and right in time, up and down in memory. The Table button shows the same data as a table.</p>
    <p class="reading mono" role="status">${shown ? about(shown, graph) : " "}</p>
    ${isTable && html`<div class="scroll" tabindex="0" role="region" aria-label="Memory as a table"><table class="kernels plain">
      <thead><tr>${["Values", "From", "Until", "Offset", "Size"].map((title) => html`<th key=${title} scope="col">${title}</th>`)}</tr></thead>
      <tbody>${buffers.map((buffer) => html`<tr key=${buffer.at}>${[buffer.named.map((name) => `${name} ${port(graph.operands[name])}`).join(", ") || "scratch of a kernel", buffer.from, buffer.until, buffer.offset.toLocaleString("en"), bytes(buffer.bytes)].map((text, at) => html`<td key=${at} class=${at > 2 ? "number" : "mono"}>${text}</td>`)}</tr>`)}</tbody></table></div>`}
  </div>`;
}
