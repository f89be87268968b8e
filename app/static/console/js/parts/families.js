// Operator family of a kernel, which decides its colour.
const FAMILIES = { conv: "conv", winograd: "conv", depthwise: "conv", gemm: "linear", matmul: "linear", linear: "linear", pool: "pool", softmax: "activation", reduce: "reduce", map: "expression", transpose: "shape", copy: "shape", attention: "attention" };

export const familyOf = (row) => FAMILIES[row.kernel] ?? (row.type.match(/conv/i) ? "conv" : "other");
export const rowClass = (row, picked) => `family-${familyOf(row)}${row.name === picked ? " picked" : ""}`;
