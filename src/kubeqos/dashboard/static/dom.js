// Elements, tables, panels and downloads. Texts are set as text, never as markup: a pod may be called anything.

const SVG = "http://www.w3.org/2000/svg";

/** An element with attributes and children; `on…` attributes are listeners, null and false leave an attribute out. */
export function h(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/** The same for drawings. */
export function s(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(4).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** New children in place of the old ones; who has come by keyboard to one of them stays at its successor. */
export function put(element, ...children) {
  const held = element.contains(document.activeElement) ? label(document.activeElement) : null;
  element.replaceChildren(...children.flat(4).filter((child) => child !== null && child !== undefined && child !== false));
  if (held) [...element.querySelectorAll("a, button, input, [tabindex]")].find((one) => label(one) === held)?.focus({ preventScroll: true });
  return element;
}

const label = (element) => element.getAttribute("href") ?? element.getAttribute("aria-label") ?? element.id;

/** Tell who cannot see the change. */
export function say(text) {
  document.getElementById("said").textContent = text;
}

export function link(path, ...text) {
  return h("a", { href: `#/${path.split("/").map(encodeURIComponent).join("/")}` }, ...text);
}

export const podLink = (namespace, name) => link(`pods/${namespace}/${name}`, `${namespace}/${name}`);

/** A part of a page: a heading, what it shows, and how to get the same without it. */
export function panel(title, { command = "", wide = false, tools = [] }, ...body) {
  const id = `panel-${title.toLowerCase().replace(/[^a-z]+/g, "-")}`;
  return h(
    "section",
    { class: wide ? "panel wide" : "panel", "aria-labelledby": id },
    h("div", { class: "head" }, h("h2", { id }, title), h("div", { class: "tools" }, ...tools)),
    h("div", { class: "body" }, ...body),
    command && copyable(command),
  );
}

/** A command with a button that copies it. */
export function copyable(command, label = "Copy") {
  const button = h("button", { type: "button", class: "small", "aria-label": `${label}: ${command}` }, label);
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(command);
    say(`Copied: ${command}`);
    button.textContent = "Copied";
    setTimeout(() => (button.textContent = label), 1500);
  });
  return h("p", { class: "command" }, h("code", {}, command), button);
}

/** Columns are [title, row => text or element, row => text for CSV]. */
export function table(caption, columns, rows, { shown = rows.length } = {}) {
  if (!rows.length) return h("p", { class: "none" }, "None.");
  return h(
    "div",
    { class: "scroll", tabindex: 0, role: "region", "aria-label": caption },
    h(
      "table",
      {},
      h("caption", { class: "quiet" }, caption),
      h("thead", {}, h("tr", {}, columns.map(([title]) => h("th", { scope: "col" }, title)))),
      h("tbody", {}, rows.slice(0, shown).map((row) => h("tr", {}, columns.map(([, cell]) => h("td", {}, cell(row)))))),
    ),
  );
}

/** A table whose rows stay as long as the object behind them does: one change in thousands draws one row. */
export class LiveTable {
  constructor(caption, columns) {
    this.columns = columns;
    this.caption = caption;
    this.element = h("div");
    this.rows = new Map();
    this.body = null;
  }

  update(rows) {
    if (!rows.length || !this.body) {
      put(this.element, table(this.caption, this.columns, rows));
      this.body = this.element.querySelector("tbody");
      this.rows = new Map(rows.map((row, index) => [row, this.body?.rows[index]]));
      return;
    }
    const next = new Map(rows.map((row) => [row, this.rows.get(row) ?? h("tr", {}, this.columns.map(([, cell]) => h("td", {}, cell(row))))]));
    for (const [row, drawn] of this.rows) if (!next.has(row)) drawn.remove(); // first: what stays need not move then
    let place = this.body.firstElementChild;
    for (const drawn of next.values()) {
      if (drawn === place) place = place.nextElementSibling;
      else this.body.insertBefore(drawn, place);
    }
    this.rows = next;
  }
}

export function csvButton(name, columns, rows) {
  const saved = () => save(`${name}.csv`, "text/csv", csv(typeof columns === "function" ? columns() : columns, rows()));
  return h("button", { type: "button", class: "small", onclick: saved, "aria-label": `Download ${name} as CSV` }, "CSV");
}

/** A table with a button of its own, where its panel has more than one. */
export function savable(name, caption, columns, rows) {
  return rows.length ? h("div", { class: "savable" }, table(caption, columns, rows), csvButton(name, columns, () => rows)) : table(caption, columns, rows);
}

function csv(columns, rows) {
  const cell = (value) => {
    let text = String(value ?? "");
    if (/^[=+\-@\t\r]/.test(text)) text = `'${text}`; // a spreadsheet would run it
    return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  const plain = (column, row) => (column[2] ?? ((one) => (column[1](one)?.textContent ?? column[1](one))))(row);
  return [columns.map(([title]) => cell(title)), ...rows.map((row) => columns.map((column) => cell(plain(column, row))))]
    .map((cells) => cells.join(","))
    .join("\r\n");
}

export function svgButton(name, drawing, text = "SVG") {
  const saved = () => {
    const copy = drawing().cloneNode(true);
    copy.setAttribute("xmlns", SVG);
    save(`${name}.svg`, "image/svg+xml", new XMLSerializer().serializeToString(copy));
  };
  return h("button", { type: "button", class: "small", onclick: saved, "aria-label": `Download ${name} as SVG` }, text);
}

function save(name, type, text) {
  const address = URL.createObjectURL(new Blob([text], { type }));
  h("a", { href: address, download: name.replaceAll(/[^A-Za-z0-9._-]+/g, "-") }).click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}

export const leftOut = (found) =>
  found.length ? h("ul", { class: "left-out", "aria-label": "Left out" }, found.map((one) => h("li", {}, `Left out: ${one}`))) : null;

/** A state in words and a sign, so that nobody needs its colour. */
export function badge(text, kind) {
  const sign = { good: "✓", bad: "✕", wait: "…", plain: "" }[kind] ?? "";
  return h("span", { class: `badge ${kind}` }, sign && h("span", { "aria-hidden": "true" }, `${sign} `), text);
}

export function phase(text) {
  return badge(text, { Running: "good", Succeeded: "good", Failed: "bad", Pending: "wait" }[text] ?? "plain");
}

/** How full: a bar with the number beside it. */
export function meter(share, text) {
  const inside = h("span", {});
  inside.style.width = `${Math.min(100, Math.round((share ?? 0) * 100))}%`;
  const level = share >= 1 ? "full" : share >= 0.8 ? "high" : "";
  return h("span", { class: "with-meter" }, h("span", { class: `meter ${level}`, "aria-hidden": "true" }, inside), text);
}

export const bytes = (size) => {
  for (const [power, unit] of [[40, "TiB"], [30, "GiB"], [20, "MiB"], [10, "KiB"]])
    if (size >= 2 ** power) return `${(size / 2 ** power).toFixed(1).replace(/\.0$/, "")} ${unit}`;
  return `${size} B`;
};

export const clock = (seconds) => new Date(seconds * 1000).toLocaleTimeString([], { hour12: false });

/** `0-3,8` as numbers. */
export function cpuList(text) {
  const found = [];
  for (const part of text.split(",").filter(Boolean)) {
    const [first, last] = part.split("-").map(Number);
    for (let cpu = first; cpu <= (last ?? first); cpu++) found.push(cpu);
  }
  return found;
}
