// All nodes in a table: a page of rows at a time, sorted by any column, linked with the map, and as a CSV file.

import { make } from "./format.js";

const ROWS = 12;

const columnLabel = ({ label }) => (typeof label === "function" ? label() : label);

export class NodeTable {
  // columns: [{ key, label, numeric, value(i), text(i) }]; a label that changes is a function
  constructor(element, { columns, n, choose, describe }) {
    Object.assign(this, { element, columns, n, choose, describe });
    this.order = Uint32Array.from({ length: n }, (_, i) => i);
    this.kept = this.order;
    this.sorting = { column: null, descending: false };
    this.first = 0;
    this.filter = "";
    this.selected = -1;
    this.build();
    this.show();
  }

  build() {
    const head = make("tr");
    this.headers = this.columns.map((column) => {
      const button = make("button", { type: "button", text: columnLabel(column), on: { click: () => this.sort(column) } });
      const cell = make("th", { scope: "col", class: column.numeric ? "numeric" : null }, button);
      head.append(cell);
      return cell;
    });
    this.body = make("tbody");
    const table = make("table", { class: "nodes" }, make("caption", { class: "hidden", text: "All nodes" }), make("thead", {}, head), this.body);
    this.state = make("span", { class: "state", role: "status" });
    const turn = (text, label, act) => make("button", { type: "button", class: "turn", "aria-label": label, text, on: { click: act } });
    this.back = turn("‹ Back", "Previous rows", () => this.go(this.first - ROWS));
    this.next = turn("Next ›", "Next rows", () => this.go(this.first + ROWS));
    this.element.replaceChildren(make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Table of nodes" }, table), make("div", { class: "pager" }, this.back, this.state, this.next));
  }

  go(first) {
    this.first = Math.max(0, Math.min(first, Math.floor(Math.max(this.kept.length - 1, 0) / ROWS) * ROWS));
    this.show();
  }

  sort(column) {
    const { sorting } = this;
    if (sorting.column === column) sorting.descending = !sorting.descending;
    else Object.assign(sorting, { column, descending: column.numeric });
    this.arrange();
    this.go(0);
  }

  arrange() {
    const { column, descending } = this.sorting;
    const sign = descending ? -1 : 1;
    if (column) {
      const keys = Array.from({ length: this.n }, (_, i) => column.value(i));
      const missing = (key) => key === null || Number.isNaN(key);
      const compare = column.numeric ? (a, b) => a - b : (a, b) => (a < b ? -1 : a > b ? 1 : 0);
      this.order = Uint32Array.from({ length: this.n }, (_, i) => i).sort((i, j) => {
        const [a, b] = [keys[i], keys[j]];
        if (missing(a) || missing(b)) return missing(a) - missing(b) || i - j; // last, whichever the direction
        return sign * compare(a, b) || i - j;
      });
    }
    const wanted = this.filter.toLowerCase();
    this.kept = wanted ? this.order.filter((i) => this.columns[0].text(i).toLowerCase().includes(wanted)) : this.order;
    this.headers.forEach((header, k) => {
      const here = this.columns[k] === column;
      header.setAttribute("aria-sort", here ? (descending ? "descending" : "ascending") : "none");
    });
  }

  search(text) {
    this.filter = text;
    this.arrange();
    this.go(0);
  }

  refresh() {
    this.columns.forEach((column, k) => (this.headers[k].firstChild.textContent = columnLabel(column)));
    this.arrange();
    this.show();
  }

  select(node) {
    this.selected = node;
    const at = node < 0 ? -1 : this.kept.indexOf(node);
    if (at >= 0 && (at < this.first || at >= this.first + ROWS)) this.first = Math.floor(at / ROWS) * ROWS;
    this.show();
  }

  show() {
    const shown = this.kept.subarray(this.first, this.first + ROWS);
    const rows = [...shown].map((node) => {
      const cells = this.columns.map((column, k) => {
        const text = column.text(node);
        if (k > 0) return make("td", { class: column.numeric ? "numeric" : null, text });
        const name = make("button", { type: "button", class: "name", text: text === "" ? "(empty name)" : text, title: "Show on the map", on: { click: () => this.choose(node) } });
        return make("th", { scope: "row" }, name);
      });
      return make("tr", { "aria-selected": node === this.selected ? "true" : null, "data-node": node }, ...cells);
    });
    if (!rows.length) rows.push(make("tr", {}, make("td", { colspan: this.columns.length, text: "No node has such a name." })));
    this.body.replaceChildren(...rows);
    const last = Math.min(this.first + ROWS, this.kept.length);
    const count = this.kept.length.toLocaleString("en-US");
    this.state.textContent = this.kept.length ? `${(this.first + 1).toLocaleString("en-US")}–${last.toLocaleString("en-US")} of ${count}` : "0";
    this.back.disabled = this.first === 0;
    this.next.disabled = last >= this.kept.length;
  }
}

// A CSV file of all nodes in the order given, full precision; empty where there is no value.
export function asCsv(columns, order) {
  const quoted = (text) => (/[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  const lines = [columns.map((column) => quoted(column.key)).join(",")];
  for (const i of order) {
    lines.push(
      columns
        .map((column) => {
          const value = column.value(i);
          if (value === null || Number.isNaN(value)) return "";
          return quoted(typeof value === "number" ? String(Number(value.toPrecision(7))) : String(value));
        })
        .join(","),
    );
  }
  return `${lines.join("\r\n")}\r\n`;
}

export function download(text, name, type) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  make("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}
