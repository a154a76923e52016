// Numbers and elements. Text always goes in as text: nothing here, or anywhere on the page, parses it as HTML.

export const MISSING = "–";

export function formatNumber(value, decimals = 2) {
  if (value === null || value === undefined || Number.isNaN(value)) return MISSING;
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  const size = Math.abs(value);
  if (size !== 0 && (size >= 1e7 || (decimals > 6 && size < 1e-4))) {
    const [digits, power] = value.toExponential(2).split("e");
    return `${digits.replace("-", "−")} × 10^${power.replace("+", "").replace("-", "−")}`;
  }
  const places = Math.max(0, Math.min(decimals, 8));
  const text = size.toLocaleString("en-US", { minimumFractionDigits: places, maximumFractionDigits: places });
  return value < 0 && Number(size.toFixed(places)) !== 0 ? `−${text}` : text;
}

export const formatShare = (share) => {
  if (Number.isNaN(share)) return MISSING;
  if (share > 0 && share < 0.005) return "< 1 %";
  if (share < 1 && share > 0.995) return "> 99 %";
  return `${Math.round(100 * share)} %`;
};

export const withUnit = (text, unit) => (unit && text !== MISSING ? `${text} ${unit}` : text);

export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "text") element.textContent = value;
    else if (name === "on") for (const [event, act] of Object.entries(value)) element.addEventListener(event, act);
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}

export function draw(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "text") element.textContent = value;
    else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

// Round numbers between two ends, at most so many.
export function roundTicks(low, high, most = 5) {
  const span = high - low;
  if (!(span > 0)) return [low];
  let step = 10 ** Math.floor(Math.log10(span / most));
  for (const factor of [1, 2, 2.5, 5, 10]) {
    if (span / (step * factor) <= most) {
      step *= factor;
      break;
    }
  }
  const ticks = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9 * span; k++) ticks.push(k * step);
  return ticks.map((tick) => (Math.abs(tick) < 1e-12 * span ? 0 : tick));
}

export function tickDecimals(ticks) {
  const step = ticks.length > 1 ? Math.abs(ticks[1] - ticks[0]) : Math.abs(ticks[0]) || 1;
  for (let places = 0; places < 9; places++) {
    if (Math.abs(step * 10 ** places - Math.round(step * 10 ** places)) < 1e-6 * step * 10 ** places) return places;
  }
  return 3;
}
