// Roofline: rate over arithmetic intensity, log scales, with the measured limits of the machine.
import { html } from "../html.js";
import { digits, scaled, time } from "../format.js";
import { rowClass } from "./families.js";

const [WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM] = [860, 340, 78, 20, 16, 42];

const tens = (low, high) => Array.from({ length: Math.max(0, high - low + 1) }, (_, at) => 10 ** (low + at));

export function Roofline({ rows, host, threads, picked, onPick }) {
  const peak = host.measured.flops_per_s * threads;
  const stream = host.measured.memory_bytes_per_s;
  const near = host.measured.second_level_bytes_per_s * threads;
  const points = rows.filter(({ flops, bytes, time_us: spent }) => flops > 0 && bytes > 0 && spent > 0)
    .map((row) => ({ row, x: row.flops / row.bytes, y: (row.flops / row.time_us) * 1e6 }));
  if (!points.length) return html`<p class="soft">No kernel of this model has counted arithmetic.</p>`;
  const [xs, ys] = [points.map(({ x }) => x), points.map(({ y }) => y)];
  const low = [Math.floor(Math.log10(Math.min(0.1, ...xs))), Math.floor(Math.log10(Math.min(peak / 100, ...ys)))];
  const high = [Math.ceil(Math.log10(Math.max((peak / stream) * 4, ...xs))), Math.ceil(Math.log10(Math.max(peak * 1.1, ...ys)))];
  const px = (x) => LEFT + ((Math.log10(x) - low[0]) / (high[0] - low[0])) * (WIDTH - LEFT - RIGHT);
  const py = (y) => HEIGHT - BOTTOM - ((Math.log10(y) - low[1]) / (high[1] - low[1])) * (HEIGHT - TOP - BOTTOM);
  const roof = (rate) => {
    const start = Math.max(10 ** low[0], 10 ** low[1] / rate);
    return `M${px(start)} ${py(Math.min(peak, start * rate))}L${px(Math.max(start, peak / rate))} ${py(peak)}H${WIDTH - RIGHT}`;
  };
  return html`<div class="scroll"><svg class="roofline" viewBox=${`0 0 ${WIDTH} ${HEIGHT}`} role="img" aria-label=${`Roofline of ${points.length} kernels under ${scaled(peak, "FLOP/s")}`}>
    ${tens(low[0], high[0]).map((x) => html`<g key=${x}><path class="grid" d=${`M${px(x)} ${TOP}V${HEIGHT - BOTTOM}`} /><text x=${px(x)} y=${HEIGHT - BOTTOM + 16} text-anchor="middle">${digits(x)}</text></g>`)}
    ${tens(low[1], high[1]).map((y) => html`<g key=${y}><path class="grid" d=${`M${LEFT} ${py(y)}H${WIDTH - RIGHT}`} /><text x=${LEFT - 8} y=${py(y) + 4} text-anchor="end">${scaled(y, "FLOP/s").replace("FLOP/s", "")}</text></g>`)}
    <text class="axis" x=${(WIDTH + LEFT) / 2} y=${HEIGHT - 6} text-anchor="middle">FLOP per byte</text>
    <text class="axis" x="14" y=${HEIGHT / 2} text-anchor="middle" transform=${`rotate(-90 14 ${HEIGHT / 2})`}>FLOP per second</text>
    <path class="roof near" d=${roof(near)} /><path class="roof" d=${roof(stream)} />
    <text class="note" x=${WIDTH - RIGHT - 4} y=${TOP + 12} text-anchor="end">flat: ${scaled(peak, "FLOP/s")} of ${threads} ${threads === 1 ? "thread" : "threads"} · slopes: memory, and (dashed) L2 cache</text>
    ${points.map(({ row, x, y }) => html`<circle key=${row.order} class=${rowClass(row, picked)} cx=${px(x)} cy=${py(y)} r=${4 + 15 * Math.sqrt(row.share)} onClick=${() => onPick(row.name)}><title>${row.name} · ${row.kernel} · ${time(row.time_us / 1e6)} · ${scaled(y, "FLOP/s")}</title></circle>`)}
  </svg></div>`;
}
