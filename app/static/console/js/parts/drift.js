// Difference of values by operator in execution order.
import { html } from "../html.js";
import { little } from "./versus-table.js";

const [WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM] = [1120, 210, 54, 14, 14, 26];
const LEAST = 1e-9;

export function Drift({ rows, picked, onPick }) {
  const shares = rows.map((row) => row.relative ?? Infinity);
  const tolerance = Math.max(LEAST, ...rows.map((row) => (row.scale ? row.allowed / row.scale : 0)));
  const finite = shares.filter((each) => Number.isFinite(each) && each > 0);
  const low = Math.floor(Math.log10(Math.max(LEAST, Math.min(1e-8, ...finite))));
  const high = Math.ceil(Math.log10(Math.max(10 * tolerance, ...finite)));
  const px = (at) => LEFT + ((at + 0.5) / rows.length) * (WIDTH - LEFT - RIGHT);
  const py = (share) => {
    const place = share === 0 ? 0 : Math.min(1, Math.max(0, (Math.log10(share) - low) / (high - low)));
    return HEIGHT - BOTTOM - place * (HEIGHT - TOP - BOTTOM);
  };
  const step = high - low > 8 ? 2 : 1;
  const powers = Array.from({ length: Math.floor((high - low) / step) + 1 }, (_, at) => low + at * step);
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Difference by operator"><svg class="tradeoff drift" viewBox=${`0 0 ${WIDTH} ${HEIGHT}`} role="img" aria-label=${`Difference of ${rows.length} operators in execution order, at most ${little(Math.max(...shares))} of a value's scale`}>
    ${powers.map((power) => html`<g key=${power}><path class="grid" d=${`M${LEFT} ${py(10 ** power)}H${WIDTH - RIGHT}`} /><text x=${LEFT - 8} y=${py(10 ** power) + 4} text-anchor="end">${power === low ? "0" : `1e${power}`}</text></g>`)}
    <path class="limit" d=${`M${LEFT} ${py(tolerance)}H${WIDTH - RIGHT}`} /><text class="note" x=${WIDTH - RIGHT - 4} y=${py(tolerance) - 5} text-anchor="end">tolerance ${little(tolerance)} of a value's scale</text>
    <path class="front" d=${`M${rows.map((row, at) => `${px(at).toFixed(1)} ${py(shares[at]).toFixed(1)}`).join("L")}`} />
    ${rows.map((row, at) => html`<circle key=${at} class=${[row.diverges ? "wrong" : "best", row.operator === picked && "picked"].filter(Boolean).join(" ")} cx=${px(at)} cy=${py(shares[at])} r=${row.operator === picked ? 6 : rows.length > 120 ? 2.5 : 4} onClick=${() => onPick(row.operator)}><title>${row.operator} · ${row.type} · ${row.apart ?? `${little(row.relative)} of its scale`}</title></circle>`)}
    <text class="axis" x=${(LEFT + WIDTH - RIGHT) / 2} y=${HEIGHT - 6} text-anchor="middle">operators in execution order</text>
  </svg></div>`;
}
