// Precision of operators: that of the numbers they multiply or pass on.
export const PRECISIONS = { int8: "int8", float32: "float32", float64: "float64", float16: "float16", bfloat16: "bfloat16", mixed: "several precisions", integer: "integers" };
const BYTES = ["int8", "uint8"];
const QUANTISING = /(Quantize|Dequantize|quantize|dequantize)/i;

// Precision of an operator; null for constants, and for the graph's inputs and outputs.
export function precisionOf(row, graph, producers) {
  if (/^pnnx\.(Attribute|Input|Output)$/.test(row.type)) return null;
  if (row.params?.precision === "bf16") return "bfloat16";
  const dtypes = [...row.inputs, ...row.outputs].map((name) => graph.operands[name]?.dtype);
  const sources = row.inputs.map((name) => producers.get(name)?.type ?? "");
  if (QUANTISING.test(row.type) || dtypes.some((each) => BYTES.includes(each))) return "int8";
  if (sources.filter((type) => type === "DequantizeLinear").length > 1) return "int8";
  const result = graph.operands[row.outputs[0]]?.dtype ?? "";
  return result in PRECISIONS ? result : "integer";
}

// Precision of each operator of a graph by index.
export function precisionsOf(graph) {
  const producers = new Map(graph.operators.flatMap((row) => row.outputs.map((name) => [name, row])));
  return graph.operators.map((row) => precisionOf(row, graph, producers));
}

// Layout whose cards are coloured by precision: a kernel has that of its products, a block may have several.
// A kernel that only rounds its result to bytes has the precision of what it computes.
export function byPrecision(layout, graph, precisions) {
  const nodes = layout.nodes.map((node) => {
    const known = node.operators.filter((index) => precisions[index]);
    const computing = known.filter((index) => !QUANTISING.test(graph.operators[index].type));
    const found = new Set((computing.length ? computing : known).map((index) => precisions[index]));
    const products = node.kind === "fold" ? undefined : ["int8", "bfloat16"].find((each) => found.has(each));
    const name = products ?? (found.size > 1 ? "mixed" : [...found][0]);
    return { ...node, family: name ? `precision-${name}` : node.family };
  });
  return { ...layout, nodes };
}
