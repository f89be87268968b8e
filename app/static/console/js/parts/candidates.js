// Table of candidates, filled while they run, and the recommendation for one of them.
import { html, useState } from "../html.js";
import { digits, plural, time } from "../format.js";
import { Copy } from "./copy.js";

const without = (names) => (names.length > 4 ? `without ${names.length} passes` : `without ${names.join(", ").replaceAll("_", " ")}`);

export function nameOf(row) {
  if (row.backend === "reference") return `NumPy layers, batch ${row.batch}`;
  return [plural(row.threads, "thread"), `batch ${row.batch}`, row.winograd === "off" && "no Winograd", row.precision !== "float32" && row.precision, row.passes_off.length > 0 && without(row.passes_off)].filter(Boolean).join(", ");
}

// Short name, for labels in the chart.
export const shortOf = (row) => (row.backend === "reference" ? `NumPy, batch ${row.batch}` : nameOf(row).replace(/without (\d+ passes|.*?)(?=, |$)/, (_, names) => `− ${names}`));

const little = (value) => (value === 0 ? "identical" : value === null || value === undefined ? "–" : value < 1e-3 ? value.toExponential(1) : digits(value, 2));

const COLUMNS = [["name", "Candidate"], ["median_s", "Median"], ["least_s", "Minimum"], ["per_second", "Items/s"], ["largest", "Max error"], ["runs", "Runs"]];

function State({ row }) {
  if (row.problem) return html`<td colspan="5" class="refused">${row.problem}</td>`;
  return html`<td colspan="5" class="soft">${row.doing ?? (row.isReady ? "waiting" : "not compiled yet")}</td>`;
}

export function Candidates({ rows, best, picked, onPick }) {
  const [[key, isDown], setOrder] = useState(["id", false]);
  const value = (row) => (key === "name" ? nameOf(row) : row[key] ?? Infinity);
  const sorted = [...rows].sort((a, b) => {
    const [one, other] = [value(a), value(b)];
    const order = typeof one === "string" ? one.localeCompare(other) : one - other;
    return (isDown ? -1 : 1) * (Number.isNaN(order) ? 0 : order) || a.id - b.id;
  });
  const most = Math.max(1e-12, ...rows.map((row) => row.median_s ?? 0));
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Candidates"><table class="kernels trials">
    <thead><tr>${COLUMNS.map(([name, title]) => html`<th key=${name} scope="col" aria-sort=${name === key ? (isDown ? "descending" : "ascending") : "none"}><button onClick=${() => setOrder([name, name === key ? !isDown : ["per_second", "runs"].includes(name)])}>${title}${name === key ? (isDown ? " ↓" : " ↑") : ""}</button></th>`)}</tr></thead>
    <tbody>${sorted.map((row) => html`<tr key=${row.id} class=${row.id === picked ? "picked" : ""} onClick=${() => onPick(row.id)}>
      <td><button class="link">${nameOf(row)}</button>${row.served && html` <span class="chip">as served</span>`}${best.includes(row.id) && html` <span class="chip good">best</span>`}</td>
      ${row.median_s ? html`<td class="number"><i style=${{ width: `${Math.max(1, (60 * row.median_s) / most)}px` }}></i>${time(row.median_s)}</td><td class="number">${time(row.least_s)}</td><td class="number">${digits(row.per_second)}</td>
        <td class="number" title="largest difference from the reference">${little(row.largest)}</td>
        <td class="number">${digits(row.runs)}${row.disturbed > 0 && html` <span class="chip warn" title=${`Requests were answered during ${row.disturbed} of its turns`}>disturbed</span>`}</td>` : html`<${State} row=${row} />`}
    </tr>`)}</tbody></table></div>`;
}

function gain(row, served) {
  if (!served?.median_s || row === served) return row === served ? "As served now." : "";
  const [sooner, more] = [served.median_s / row.median_s, row.per_second / served.per_second];
  const say = (ratio, up, down) => (ratio > 1.03 ? `${digits(ratio, 3)} × ${up}` : ratio < 0.97 ? `${digits(1 / ratio, 3)} × ${down}` : null);
  return [say(sooner, "faster", "slower"), say(more, "higher throughput", "lower throughput")].filter(Boolean).join(", ").concat(" than as served").replace(/^ than as served$/, "No measurable difference from as served.");
}

export function Advice({ title, row, served }) {
  if (!row) return html`<section class="panel advice"><h2>${title}</h2><p class="way soft">Not measured yet</p></section>`;
  const { config, settings, command } = row.advice;
  return html`<section class="panel advice"><h2>${title}</h2>
    <p class="way">${nameOf(row)}</p>
    <p class="number soft">${[`${time(row.median_s)} a run`, `${digits(row.per_second)} items/s`, gain(row, served)].filter(Boolean).join(" · ")}</p>
    <${Copy} title="config.toml" text=${config} />
    ${settings && html`<${Copy} title="Settings" text=${settings} note="Settings of the server; they apply to all its models." />`}
    <${Copy} title="Reproduce" text=${command} /></section>`;
}
