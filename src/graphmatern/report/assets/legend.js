// What the colours mean.

import { FADES, LEVELS } from "./colours.js";
import { formatNumber, make, roundTicks, tickDecimals } from "./format.js";

export function showLegend(element, { title, layer, styles, limits, beyond, faded, rings, missing }) {
  const parts = [make("p", { class: "what", text: title })];
  if (layer.kind === "classes") {
    const list = make("ul", { class: "swatches" });
    layer.classes.forEach((name, k) => {
      const swatch = make("span", { class: "swatch" });
      swatch.style.background = styles[k];
      list.append(make("li", {}, swatch, make("span", { text: name })));
    });
    parts.push(list);
  } else parts.push(scale(layer, styles, limits, beyond));
  if (faded) {
    const fades = make("span", { class: "fades" });
    for (let fade = 0; fade < FADES; fade++) {
      const step = make("span");
      step.style.background = styles[fade * LEVELS + Math.round(0.35 * LEVELS)];
      fades.append(step);
    }
    parts.push(make("p", { class: "note" }, fades, "paler: less certain"));
  }
  if (missing) {
    const swatch = make("span", { class: "swatch" });
    swatch.style.background = styles[255];
    parts.push(make("p", { class: "note" }, swatch, missing));
  }
  if (rings) parts.push(make("p", { class: "note" }, make("span", { class: "ring" }), "observed"));
  element.replaceChildren(...parts);
}

function scale(layer, styles, [low, high], beyond) {
  const bar = make("canvas", { width: LEVELS, height: 1, class: "bar", "aria-hidden": "true" });
  const context = bar.getContext("2d");
  for (let k = 0; k < LEVELS; k++) {
    context.fillStyle = styles[k];
    context.fillRect(k, 0, 1, 1);
  }
  const share = layer.kind === "share";
  const ticks = share ? [0, 0.5, 1] : high > low ? fewTicks(low, high) : [low];
  const places = tickDecimals(ticks);
  const axis = make("div", { class: "ticks" });
  ticks.forEach((tick, k) => {
    let text = share ? `${100 * tick} %` : formatNumber(tick, ticks.length > 1 ? places : layer.decimals);
    const at = high > low ? (tick - low) / (high - low) : 0.5;
    if (beyond[0] && k === 0 && at < 0.02) text = `≤ ${text}`;
    if (beyond[1] && k === ticks.length - 1 && at > 0.98) text = `≥ ${text}`;
    const label = make("span", { text, class: at < 0.08 ? "first" : at > 0.92 ? "last" : null });
    label.style.left = `${100 * at}%`;
    axis.append(label);
  });
  return make("div", { class: "scale" }, bar, axis);
}

// Two to four round numbers.
function fewTicks(low, high) {
  const few = roundTicks(low, high, 3);
  return few.length > 1 ? few : roundTicks(low, high, 5);
}

// A bar of a round length, for maps whose unit is known.
export function showScaleBar(element, pixelsPerUnit, { metres, unit }) {
  const perPixel = metres / pixelsPerUnit;
  const room = 110 * perPixel;
  const power = 10 ** Math.floor(Math.log10(room));
  const length = [5, 2, 1].map((factor) => factor * power).find((one) => one <= room);
  const inKilometres = unit === "m" && length >= 1000;
  const number = inKilometres ? length / 1000 : length;
  element.firstElementChild.style.width = `${length / perPixel}px`;
  element.lastElementChild.textContent = `${formatNumber(number, number < 1 ? Math.ceil(-Math.log10(number)) : 0)} ${inKilometres ? "km" : unit}`;
}
