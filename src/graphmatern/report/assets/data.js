// What the page shows: one block of bytes, packed by report/_pack.py.
//
// The block is base64 in the page and gzip inside. It begins with the length of a JSON text, then that text, which
// says where each array begins; numbers are little-endian, as in every browser there is.

const TYPES = { f4: Float32Array, u4: Uint32Array, u2: Uint16Array, u1: Uint8Array, i1: Int8Array };

export async function readPage(element) {
  const text = atob(element.textContent.trim());
  const packed = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) packed[i] = text.charCodeAt(i);
  element.remove(); // the text is no longer needed, and may be megabytes
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  const bytes = await new Response(stream).arrayBuffer();
  const length = new DataView(bytes).getUint32(0, true);
  const info = JSON.parse(new TextDecoder().decode(new Uint8Array(bytes, 8, length)));
  const start = Math.ceil((8 + length) / 8) * 8;
  const arrays = {};
  for (const [name, one] of Object.entries(info.arrays)) {
    arrays[name] = new TYPES[one.type](bytes, start + one.offset, one.count);
  }
  return { ...info, stored: info.arrays, arrays };
}

// Values of one layer as float32, NaN where there is none; of a field, those at one time, which are kept in 16 bits.
export function valuesOf(page, name, time) {
  const all = page.arrays[name];
  const part = all.length > page.n ? all.subarray(time * page.n, (time + 1) * page.n) : all;
  return part instanceof Uint16Array ? unpacked(part, page.stored[name]) : part;
}

// All values of one node of a field, over time.
export function seriesOf(page, name, node) {
  const all = page.arrays[name];
  const count = all.length / page.n;
  const part = new all.constructor(count);
  for (let t = 0; t < count; t++) part[t] = all[t * page.n + node];
  return part instanceof Uint16Array ? unpacked(part, page.stored[name]) : part;
}

function unpacked(codes, { low, step }) {
  const values = new Float32Array(codes.length);
  for (let i = 0; i < codes.length; i++) values[i] = codes[i] === 65535 ? NaN : low + step * codes[i];
  return values;
}
