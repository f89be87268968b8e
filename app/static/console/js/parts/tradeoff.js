// Latency against throughput, log scales: up and left is better; a line joins the Pareto front.
import { html } from "../html.js";
import { digits, time } from "../format.js";

const [WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM] = [640, 372, 62, 26, 22, 46];
const STEPS = [[1], [1, 2, 5], [1, 1.5, 2, 3, 5, 7], [1, 1.2, 1.4, 1.6, 1.8, 2, 2.5, 3, 3.5, 4, 4.5, 5, 6, 7, 8, 9]];

// Round numbers in a range, at least three if possible.
function marks(low, high) {
  const powers = Array.from({ length: Math.ceil(Math.log10(high)) - Math.floor(Math.log10(low)) + 1 }, (_, at) => 10 ** (Math.floor(Math.log10(low)) + at));
  const choices = STEPS.map((steps) => powers.flatMap((power) => steps.map((step) => step * power)).filter((each) => each >= low && each <= high));
  return choices.find(({ length }) => length >= 3) ?? choices.at(-1);
}

function scaleOf(values, from, to) {
  const [low, high] = [Math.min(...values), Math.max(...values)];
  // Wide enough that differences in the last digit do not show.
  const [first, last] = [low / 1.25, high * 1.25];
  const place = (value) => from + ((to - from) * Math.log(value / first)) / Math.log(last / first);
  return [place, marks(first, last)];
}

// Labels are placed beside their points where there is room.
function placed(points, all) {
  const taken = all.map(({ x, y }) => ({ x: x - 6, y: y - 6, width: 12, height: 12 }));
  return points.map((point) => {
    const width = 6 * point.label.length;
    const spots = [[11, 4], [-11 - width, 4], [8, -10], [8, 19], [-8 - width, -10], [-8 - width, 19], [-width / 2, -13], [-width / 2, 22]]
      .map(([dx, dy]) => ({ x: point.x + dx, y: point.y + dy - 9, width, height: 11, dx, dy }))
      .filter((spot) => spot.x > LEFT && spot.x + width < WIDTH - 2 && spot.y > 14);
    const free = spots.find((spot) => !taken.some((each) => spot.x < each.x + each.width && each.x < spot.x + spot.width && spot.y < each.y + each.height && each.y < spot.y + spot.height));
    if (free) taken.push(free);
    return { ...point, spot: free };
  });
}

export function Tradeoff({ rows, best, picked, onPick, name, short }) {
  const known = rows.filter(({ median_s: each }) => each > 0);
  if (!known.length) return html`<div class="tradeoff waiting"><p class="soft">Candidates appear here as soon as they have run.</p></div>`;
  const [px, xs] = scaleOf(known.map((row) => row.median_s), LEFT + 14, WIDTH - RIGHT - 14);
  const [py, ys] = scaleOf(known.map((row) => row.per_second), HEIGHT - BOTTOM, TOP);
  const points = known.map((row) => ({ row, x: px(row.median_s), y: py(row.per_second), isBest: best.includes(row.id), label: short(row) }));
  const front = points.filter(({ isBest }) => isBest).sort((a, b) => a.x - b.x);
  const named = placed([...front, ...points.filter(({ row, isBest }) => !isBest && (row.served || row.id === picked))], points);
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Chart"><svg class="tradeoff" viewBox=${`0 0 ${WIDTH} ${HEIGHT}`} role="img" aria-label=${`Latency against throughput of ${known.length} candidates. Best: ${front.map(({ row }) => `${name(row)}, ${time(row.median_s)}, ${digits(row.per_second)} a second`).join("; ")}`}>
    ${xs.map((x) => html`<g key=${`x${x}`}><path class="grid" d=${`M${px(x)} ${TOP}V${HEIGHT - BOTTOM}`} /><text x=${px(x)} y=${HEIGHT - BOTTOM + 17} text-anchor="middle">${time(x)}</text></g>`)}
    ${ys.map((y) => html`<g key=${`y${y}`}><path class="grid" d=${`M${LEFT} ${py(y)}H${WIDTH - RIGHT}`} /><text x=${LEFT - 8} y=${py(y) + 4} text-anchor="end">${digits(y)}</text></g>`)}
    <text class="axis" x=${(LEFT + WIDTH - RIGHT) / 2} y=${HEIGHT - 6} text-anchor="middle">median latency of a run · left is better</text>
    <text class="axis" x=${LEFT} y="12" text-anchor="start">items per second · up is better</text>
    ${front.length > 1 && html`<path class="front" d=${`M${front.map(({ x, y }) => `${x} ${y}`).join("L")}`} />`}
    ${points.map(({ row, x, y, isBest }) => html`<circle key=${row.id} class=${[isBest && "best", row.served && "served", row.id === picked && "picked"].filter(Boolean).join(" ")} cx=${x} cy=${y} r=${isBest ? 7 : 5} onClick=${() => onPick(row.id)}><title>${name(row)} · ${time(row.median_s)} · ${digits(row.per_second)}/s</title></circle>`)}
    ${named.filter(({ spot }) => spot).map(({ row, x, y, spot, isBest }) => html`<text key=${`n${row.id}`} class=${isBest ? "note best" : "note"} x=${x + spot.dx} y=${y + spot.dy}>${short(row)}</text>`)}
  </svg></div>`;
}
