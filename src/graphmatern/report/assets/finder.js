// Search by node name: a box with a list of suggestions, by mouse or by keys.

import { make } from "./format.js";

const MOST = 8;

export function makeFinder(input, list, names, choose) {
  const lower = names.map((name) => name.toLowerCase());
  let found = [];
  let at = -1;

  const close = () => {
    list.hidden = true;
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
    at = -1;
  };
  const take = (node) => {
    input.value = names[node];
    close();
    choose(node);
  };
  const mark = (place) => {
    at = place;
    [...list.children].forEach((item, k) => item.setAttribute("aria-selected", String(k === at)));
    if (at >= 0) input.setAttribute("aria-activedescendant", `found-${at}`);
  };
  // Names equal to the text come first, then those that begin with it, then those that hold it.
  const search = () => {
    const text = input.value.trim().toLowerCase();
    if (!text) return close();
    const ranked = [[], [], []];
    for (let i = 0; i < lower.length; i++) {
      const where = lower[i].indexOf(text);
      if (where < 0) continue;
      const rank = lower[i] === text ? 0 : where === 0 ? 1 : 2;
      if (ranked[rank].length < MOST) ranked[rank].push(i);
    }
    found = ranked.flat().slice(0, MOST);
    const items = found.map((node, k) =>
      make("li", { role: "option", id: `found-${k}`, "aria-selected": "false", text: names[node], on: { pointerdown: (event) => { event.preventDefault(); take(node); } } }),
    );
    if (!items.length) items.push(make("li", { class: "none", text: "No node has such a name" }));
    list.replaceChildren(...items);
    list.hidden = false;
    input.setAttribute("aria-expanded", "true");
    return mark(found.length ? 0 : -1);
  };
  input.addEventListener("input", search);
  input.addEventListener("blur", close);
  input.addEventListener("keydown", (event) => {
    if (event.key === "Escape") close();
    if (list.hidden || !found.length) return;
    const moves = { ArrowDown: 1, ArrowUp: -1 };
    if (event.key in moves) {
      event.preventDefault();
      mark((at + moves[event.key] + found.length) % found.length);
    } else if (event.key === "Enter") {
      event.preventDefault();
      take(found[Math.max(at, 0)]);
    }
  });
}
