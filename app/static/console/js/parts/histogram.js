// Histogram of values.
import { html } from "../html.js";
import { digits } from "../format.js";

const WIDTH = 264;
const HEIGHT = 72;

export function Histogram({ counts, low, high }) {
  const most = Math.max(1, ...counts);
  const bar = WIDTH / counts.length;
  return html`<figure class="histogram">
    <svg viewBox=${`0 0 ${WIDTH} ${HEIGHT}`} role="img" aria-label=${`Histogram from ${digits(low)} to ${digits(high)}`}>
      ${counts.map((count, at) => html`<rect key=${at} x=${at * bar} width=${Math.max(0.5, bar - 1)} y=${HEIGHT - (HEIGHT * count) / most} height=${(HEIGHT * count) / most} rx="1" />`)}
      ${low < 0 && high > 0 && html`<line x1=${(WIDTH * -low) / (high - low)} x2=${(WIDTH * -low) / (high - low)} y1="0" y2=${HEIGHT} />`}
    </svg>
    <figcaption class="mono"><span>${digits(low, 4)}</span><span>${digits(high, 4)}</span></figcaption>
  </figure>`;
}
