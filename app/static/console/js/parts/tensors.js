// Tensors made in the page.
const KINDS = { float32: Float32Array, float64: Float64Array, int64: BigInt64Array, int32: Int32Array, int16: Int16Array, int8: Int8Array, uint8: Uint8Array, bool: Uint8Array };

export const known = (dtype) => dtype in KINDS;

function gauss() {
  return Math.sqrt(-2 * Math.log(1 - Math.random())) * Math.cos(2 * Math.PI * Math.random());
}

export function fill(shape, dtype, how, given) {
  const count = shape.reduce((product, dim) => product * dim, 1);
  const values = new KINDS[dtype](count);
  if (how === "zeros") return values;
  if (how === "typed") {
    for (let at = 0; at < count; at += 1) values[at] = dtype === "int64" ? BigInt(Math.round(given?.[at] ?? 0)) : given?.[at] ?? 0;
    return values;
  }
  for (let at = 0; at < count; at += 1) {
    if (dtype.startsWith("float")) values[at] = how === "ones" ? 1 : gauss();
    else if (dtype === "int64") values[at] = how === "ones" ? 1n : BigInt(Math.floor(Math.random() * 2));
    else values[at] = how === "ones" ? 1 : Math.floor(Math.random() * 2);
  }
  return values;
}

export function base64(values) {
  const bytes = new Uint8Array(values.buffer, values.byteOffset, values.byteLength);
  let text = "";
  for (let at = 0; at < bytes.length; at += 32768) text += String.fromCharCode(...bytes.subarray(at, at + 32768));
  return btoa(text);
}

// Values of an output; NaN and infinities are strings in JSON.
export const numbers = (data) => data.map((each) => (typeof each === "string" ? Number(each) : Number(each)));
