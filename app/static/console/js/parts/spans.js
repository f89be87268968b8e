// Spans of each thread of a run. A run without a trace is one thread, one operator after the other.
export function lanesOf(rows) {
  const traced = rows.some(({ spans }) => spans?.length);
  const lanes = new Map();
  const steps = [];
  let clock = 0;
  for (const row of [...rows].sort((a, b) => a.order - b.order)) {
    const spans = traced ? row.spans ?? [] : [{ thread: 0, begin_us: clock, end_us: clock + row.time_us, chunks: 1 }];
    for (const { thread, begin_us: begin, end_us: end, chunks } of spans) {
      if (!lanes.has(thread)) lanes.set(thread, []);
      lanes.get(thread).push({ row, thread, begin, end, chunks });
    }
    clock = Math.max(clock, ...spans.map(({ end_us: end }) => end));
    steps.push({ row, end: clock });
  }
  // Threads without any work are listed too.
  for (let thread = Math.max(0, ...lanes.keys()); thread >= 0; thread -= 1) if (!lanes.has(thread)) lanes.set(thread, []);
  const named = [...lanes.entries()].sort(([a], [b]) => a - b).map(([thread, spans]) => ({
    thread, spans, busy: spans.reduce((sum, { begin, end }) => sum + end - begin, 0),
  }));
  return { lanes: named, steps, total: Math.max(1e-3, clock) };
}

// Wait of a thread after a span, until all threads have ended the same kernel.
export const waitAfter = (span, steps) => Math.max(0, (steps.find(({ row }) => row === span.row)?.end ?? span.end) - span.end);

// Spans between two times; of those within one pixel only the longest.
export function shownSpans(spans, from, to, pixels) {
  const scale = pixels / (to - from);
  const found = [];
  for (const span of spans) {
    if (span.end < from || span.begin > to) continue;
    const last = found.at(-1);
    const isTiny = (span.end - span.begin) * scale < 0.7;
    if (isTiny && last?.isTiny && Math.floor(last.begin * scale) === Math.floor(span.begin * scale)) {
      if (span.end - span.begin > last.end - last.begin) found[found.length - 1] = { ...span, isTiny };
    } else found.push({ ...span, isTiny });
  }
  return found;
}

// About `count` round numbers in a range.
export function ticks(from, to, count = 6) {
  const rough = (to - from) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((each) => each * power >= rough);
  const first = Math.ceil(from / step) * step;
  return Array.from({ length: Math.max(0, Math.floor((to - first) / step) + 1) }, (_, at) => first + at * step);
}
