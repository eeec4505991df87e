// The cluster: how full nodes and classes are, quotas, who waits and why, who had to leave.

import { badge, bytes, clock, csvButton, h, leftOut, link, LiveTable, meter, panel, podLink, put, svgButton, table } from "./dom.js";
import { HeatMap } from "./heat.js";

const SHOWN = 100;
const IN_ORDER = new Intl.Collator(undefined, { numeric: true }).compare;
const amount = (used, capacity) => `${used} of ${capacity || "∞"}`;

const NODE_COLUMNS = [
  ["Node", (one) => link(`nodes/${one.name}`, one.name), (one) => one.name],
  ["State", (one) => (one.ready && !one.problems.length ? badge("ready", "good") : badge(one.problems.join(", ") || "not ready", "bad"))],
  ["Profile", (one) => one.profile],
  ["CPU asked for", (one) => meter(one.cpus ? one.cpuRequested / one.cpus : 0, `${round(one.cpuRequested)} of ${round(one.cpus)}`)],
  ["Own CPUs", (one) => (one.exclusive < 0 ? "–" : String(one.exclusive))],
  ["Memory asked for", (one) => meter(one.memoryBytes ? one.memoryRequested / one.memoryBytes : 0, `${bytes(one.memoryRequested)} of ${bytes(one.memoryBytes)}`)],
  ["Pods", (one) => String(one.pods)],
];
const CLASS_COLUMNS = [
  ["Resource", (one) => one.resource],
  ["Class", (one) => one.class],
  ["Used", (one) => (one.capacity ? meter(one.used / one.capacity, amount(one.used, one.capacity)) : amount(one.used, 0))],
  ["Nodes", (one) => String(one.nodes)],
];
const QUOTA_COLUMNS = [
  ["Quota", (one) => `${one.namespace}/${one.name}`],
  ["Scopes", (one) => one.scopes.join(", ")],
  ["Limits", (one) => one.resource],
  ["Used", (one) => (one.share === null ? `${one.used} of ∞` : meter(one.share, `${one.used} of ${one.hard}`))],
];
export const HAPPENING_COLUMNS = [
  ["Time", (one) => clock(one.time)],
  ["What", (one) => badge(one.reason + (one.count > 1 ? ` ×${one.count}` : ""), one.warning ? "bad" : "plain")],
  ["Who", (one) => (one.kind === "Pod" ? podLink(one.namespace, one.name) : one.kind === "Node" ? link(`nodes/${one.name}`, one.name) : `${one.kind} ${one.name}`)],
  ["Why", (one) => one.message],
];

function round(number) {
  return Math.round(number * 100) / 100;
}

/** What the boxes may show: [title, row => [share, text]]. */
function measures(data) {
  const found = [
    ["CPU asked for", (one) => [one.cpus ? one.cpuRequested / one.cpus : null, `${round(one.cpuRequested)} of ${round(one.cpus)} CPUs asked for`]],
    ["CPUs that are somebody's own", (one) => [one.exclusive < 0 || !one.cpus ? null : one.exclusive / one.cpus, one.exclusive < 0 ? "no map" : `${one.exclusive} of ${round(one.cpus)} CPUs are somebody's own`]],
    ["Memory asked for", (one) => [one.memoryBytes ? one.memoryRequested / one.memoryBytes : null, `${bytes(one.memoryRequested)} of ${bytes(one.memoryBytes)} asked for`]],
  ];
  for (const one of data.classes.filter((each) => each.capacity)) {
    const key = `${one.resource}=${one.class}`;
    found.push([`Class ${key}`, (row) => {
      const [used, capacity] = row.classes[key] ?? [0, 0];
      return [capacity ? used / capacity : null, row.classes[key] ? `${amount(used, capacity)} of ${key}` : `no ${key}`];
    }]);
  }
  return found;
}

export function clusterView(place) {
  const heat = new HeatMap();
  const chosen = h("select", { id: "measure" });
  const filter = h("input", { type: "search", id: "filter", placeholder: "part of a name" });
  const [notes, counts, more, classes, quotas, pending, lost] = Array.from({ length: 7 }, () => h("div"));
  const nodes = new LiveTable("Nodes", NODE_COLUMNS);
  let data = null;
  let order = [];
  let names = [];
  let shown = "";
  /** The names in order, those that the filter lets through; the same array until something of that changes. */
  const listed = () => {
    const same = order.length === Object.keys(data.nodes).length && order.every((name) => name in data.nodes);
    if (!same) order = Object.keys(data.nodes).sort(IN_ORDER);
    if (!same || shown !== filter.value) names = order.filter((name) => name.includes(filter.value));
    shown = filter.value;
    return names;
  };
  const rows = () => listed().map((name) => data.nodes[name]);
  const quotaRows = () => Object.values(data.quotas).flatMap((quota) => quota.bars.map((bar) => ({ ...quota, ...bar })));
  put(place,
    h("h1", {}, "Cluster"), counts, notes,
    h("div", { class: "grid" },
      panel("Nodes", { command: "kubeqos top nodes", wide: true, tools: [csvButton("nodes", NODE_COLUMNS, rows), svgButton("nodes", () => heat.element.querySelector("svg") ?? heat.element)] },
        h("div", { class: "controls" }, h("span", {}, h("label", { for: "measure" }, "Boxes show"), chosen), h("span", {}, h("label", { for: "filter" }, "Filter"), filter)), heat.element, nodes.element, more),
      panel("Waiting pods", { command: "kubectl get pods -A --field-selector status.phase=Pending", wide: true }, pending),
      panel("Classes", { command: "kubeqos classes", tools: [csvButton("classes", CLASS_COLUMNS, () => data.classes)] }, classes),
      panel("Quotas", { command: "kubeqos quota -A", tools: [csvButton("quotas", QUOTA_COLUMNS, quotaRows)] }, quotas),
      panel("Evictions and preemptions", { command: "kubectl get events -A --sort-by=.lastTimestamp", wide: true, tools: [csvButton("evictions", HAPPENING_COLUMNS, () => data.happenings)] }, lost)));

  const drawn = () => {
    const all = listed();
    const known = measures(data);
    const titles = known.map(([title]) => title);
    if ([...chosen.options].map((one) => one.value).join() !== titles.join()) {
      const before = chosen.value;
      put(chosen, titles.map((title) => h("option", { value: title }, title)));
      if (titles.includes(before)) chosen.value = before;
    }
    const [title, measure] = known[Math.max(0, chosen.selectedIndex)];
    if (all.length) heat.update(all, data.nodes, title, measure);
    heat.element.hidden = !all.length;
    nodes.update(all.slice(0, SHOWN).map((name) => data.nodes[name]));
    put(more, all.length > SHOWN && h("p", {}, `${SHOWN} of ${all.length} nodes are listed; filter for others. The CSV has all.`));
  };
  chosen.addEventListener("change", drawn);
  filter.addEventListener("input", drawn);
  new ResizeObserver(() => data && drawn()).observe(heat.element);

  const changed = { classes: null, quotas: null, pending: null, happenings: null };
  return (next) => {
    data = next;
    put(counts, h("p", { class: "counts" },
      ["nodes", "pods", "pending"].map((kind) => h("span", { class: "count" }, h("b", {}, String(data.counts[kind])), ` ${kind === "pending" ? "waiting" : kind}`)),
      data.counts.notReady ? badge(`${data.counts.notReady} not ready`, "bad") : badge("all nodes ready", data.counts.nodes ? "good" : "plain")));
    put(notes, leftOut(data.leftOut));
    drawn();
    const parts = { classes: () => put(classes, table("Classes", CLASS_COLUMNS, data.classes)), quotas: () => put(quotas, table("Quotas", QUOTA_COLUMNS, quotaRows())),
      pending: () => put(pending, waiting(data.pending)), happenings: () => put(lost, table("Evictions and preemptions", HAPPENING_COLUMNS, [...data.happenings].reverse(), { shown: SHOWN })) };
    for (const [name, draw] of Object.entries(parts)) {
      if (changed[name] === data[name]) continue;
      changed[name] = data[name];
      draw();
    }
  };
}

function waiting(groups) {
  if (!groups.length) return h("p", { class: "none" }, "None: every pod has a node.");
  return groups.map((group) =>
    h("article", { class: "group" },
      h("h3", {}, badge(`${group.pods.length} ${group.pods.length === 1 ? "pod" : "pods"}`, "wait"), " ", group.reason),
      group.nearest.length > 0 && h("ul", { class: "nearest" }, group.nearest.map((one) => h("li", {}, h("b", {}, "Nearest miss: "), one))),
      h("ul", { class: "names" }, group.pods.slice(0, 20).map((key) => h("li", {}, podLink(...key.split("/")))), group.pods.length > 20 && h("li", {}, `and ${group.pods.length - 20} more`))));
}
