// Sparkline of the last minute.
import { html } from "../html.js";

const WIDTH = 100;
const HEIGHT = 30;

export function Spark({ values, count, label }) {
  const shown = [...Array(Math.max(0, count - values.length)).fill(0), ...values.slice(-count)];
  const most = Math.max(1, ...shown);
  const points = shown.map((value, at) => `${((at / (count - 1)) * WIDTH).toFixed(2)} ${(HEIGHT - 1 - (value / most) * (HEIGHT - 4)).toFixed(2)}`);
  return html`<svg class="spark" viewBox=${`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" role="img" aria-label=${label}>
    <path class="base" d=${`M0 ${HEIGHT - 0.5}H${WIDTH}`} />
    <path class="area" d=${`M0 ${HEIGHT}L${points.join("L")}L${WIDTH} ${HEIGHT}z`} />
    <path class=${most > 1 || shown.some(Boolean) ? "line" : "base"} d=${`M${points.join("L")}`} />
  </svg>`;
}
