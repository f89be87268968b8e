// Wraps a tall graph into columns side by side, so that names can be read when all of it is shown.
const READABLE = 0.62;
const [GAP, LANE, MARGIN, GAIN, MOST] = [56, 7, 16, 1.15, 8];

const scaleOf = (width, height, size) => Math.min(size.width / (width + 60), size.height / (height + 60), 1);

// Heights between two rows of cards, where no card and no unfolded block is cut.
function cutsOf(layout) {
  const spans = [...layout.nodes, ...layout.open.filter(({ height }) => height < layout.height / 3)]
    .map(({ y, height }) => [y, y + height]).sort(([a], [b]) => a - b);
  const cuts = [];
  let end = spans[0]?.[1] ?? 0;
  for (const [from, to] of spans) {
    if (from > end + 4) cuts.push((from + end) / 2);
    end = Math.max(end, to);
  }
  return cuts;
}

function chosenCuts(layout, size) {
  const cuts = cutsOf(layout);
  let best = { cuts: [], scale: scaleOf(layout.width, layout.height, size) };
  if (best.scale >= READABLE) return best.cuts;
  for (let count = 2; count <= Math.min(MOST, cuts.length + 1); count += 1) {
    const wanted = Array.from({ length: count - 1 }, (_, at) => (layout.height * (at + 1)) / count);
    const found = [...new Set(wanted.map((y) => cuts.reduce((one, other) => (Math.abs(other - y) < Math.abs(one - y) ? other : one))))];
    const ends = [0, ...found, layout.height];
    const height = Math.max(...ends.slice(1).map((end, at) => end - ends[at]));
    const scale = scaleOf(count * layout.width + (count - 1) * GAP, height + 60, size);
    if (found.length === count - 1 && scale > best.scale * GAIN) best = { cuts: found, scale };
  }
  return best.cuts;
}

// The layout in as many columns as show it largest in a window of this size; the layout itself where one is enough.
export function wrapped(layout, size) {
  if (!size?.width || !layout.nodes.length) return layout;
  const cuts = chosenCuts(layout, size);
  if (!cuts.length) return { ...layout, columns: 1 };
  const starts = [0, ...cuts];
  const columnOf = (y) => starts.filter((start) => y >= start).length - 1;
  const tall = Math.max(...[...cuts, layout.height].map((end, at) => end - starts[at]));
  const lanes = starts.map(() => 0);
  const taken = new Map();
  // Each value that goes on in the next column has a lane of its own beside the column.
  const laneOf = (edge, column) => {
    const key = `${edge.operand} ${column}`;
    if (!taken.has(key)) { taken.set(key, lanes[column]); lanes[column] += 1; }
    return taken.get(key);
  };
  for (const edge of layout.edges) {
    for (const stroke of edge.strokes) {
      const [first, last] = [columnOf(stroke[0][1]), columnOf(stroke.at(-1)[1])];
      for (let at = first; at < last; at += 1) laneOf(edge, at);
    }
  }
  const left = [0];
  for (let at = 1; at < starts.length; at += 1) left.push(left[at - 1] + layout.width + GAP + LANE * lanes[at - 1]);
  const top = MARGIN + LANE * Math.max(...lanes);
  const move = ([x, y], column = columnOf(y)) => [x + left[column], y - starts[column] + top];
  const strokeOf = (edge, stroke) => {
    const points = [move(stroke[0])];
    for (let at = 1; at < stroke.length; at += 1) {
      const [[x0, y0], [x1, y1]] = [stroke[at - 1], stroke[at]];
      for (let column = columnOf(y0); column < columnOf(y1); column += 1) {
        const lane = LANE * laneOf(edge, column);
        const beside = left[column] + layout.width + GAP / 2 + lane;
        const [from, to] = [x0 + left[column], x1 + left[column + 1]];
        const [low, high] = [top + tall + MARGIN + lane, top - MARGIN - lane];
        points.push([from, low], [beside, low], [beside, high], [to, high], [to, top]);
      }
      points.push(move([x1, y1]));
    }
    return points;
  };
  const ends = [...cuts, layout.height];
  // An unfolded block that goes on in the next column has a frame in each.
  const partsOf = (frame) => {
    const [first, last] = [columnOf(frame.y), columnOf(frame.y + frame.height)];
    return Array.from({ length: last - first + 1 }, (_, at) => {
      const [from, to] = [Math.max(frame.y, starts[first + at]), Math.min(frame.y + frame.height, ends[first + at])];
      const [x, y] = move([frame.x, from], first + at);
      return { ...frame, x, y, height: to - from, part: at };
    });
  };
  const place = (each) => { const [x, y] = move([each.x, each.y]); return { ...each, x, y }; };
  return {
    ...layout, columns: starts.length, width: left.at(-1) + layout.width, height: top + tall + 2 * MARGIN + LANE * Math.max(...lanes),
    nodes: layout.nodes.map(place), open: layout.open.flatMap(partsOf),
    edges: layout.edges.map((edge) => ({ ...edge, strokes: edge.strokes.map((stroke) => strokeOf(edge, stroke)), heads: edge.heads.map((head) => move(head)) })),
  };
}
