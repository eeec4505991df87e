// A node: its machine with the owner of every CPU, memory, classes, conditions, pods.

import { badge, bytes, csvButton, h, leftOut, link, meter, panel, phase, podLink, put, savable, svgButton, table } from "./dom.js";
import { chart } from "./chart.js";
import { HAPPENING_COLUMNS } from "./cluster.js";
import { DefragPanel } from "./defrag.js";
import { ask } from "./live.js";
import { legend, MachineMap, signs } from "./map.js";

export const ownerColumns = (marks, light) => [
  ["Sign", (one) => marks.get(one.name)?.sign ?? ""],
  ["Owner", (one) => lighting(one, light, one.pod ? podLink(one.namespace, one.pod) : one.name), (one) => one.name],
  ["How", (one) => (one.how === "sharing" ? "shares" : one.how)],
  ["CPUs", (one) => String(one.count)],
  ["Which", (one) => one.cpus],
  ["Really", really, (one) => one.really],
  ["Memory of", (one) => (one.mems ? `NUMA ${one.mems}` : "")],
];

/** What the kernel or the runtime says of a container, beside what the books say. */
function really(one) {
  if (!one.really) return "";
  return one.drift ? badge(`drift: runs on ${one.really}`, "bad") : badge(one.really, "good");
}

/** Whoever points at an owner, or reaches it by keyboard, sees its CPUs lit. */
function lighting(owner, light, child) {
  const on = () => light(owner);
  const off = () => light(null);
  return h("span", { onmouseenter: on, onmouseleave: off, onfocusin: on, onfocusout: off }, child);
}

const CONDITION_COLUMNS = [
  ["Condition", (one) => one.type],
  ["State", (one) => badge(`${one.status}`, one.healthy ? "good" : "bad")],
  ["Reason", (one) => one.reason],
  ["Message", (one) => one.message],
];
const CLASS_COLUMNS = [
  ["Resource", (one) => one.resource],
  ["Class", (one) => one.class],
  ["Level", (one) => one.level],
  ["Used", (one) => (one.capacity ? meter(one.used / one.capacity, `${one.used} of ${one.capacity}`) : `${one.used} of ∞`)],
];
export const POD_COLUMNS = [
  ["Pod", (one) => podLink(one.namespace, one.name), (one) => `${one.namespace}/${one.name}`],
  ["State", (one) => phase(one.phase), (one) => one.phase],
  ["QoS", (one) => one.qosClass],
  ["CPU", (one) => one.cpu],
  ["Memory", (one) => one.memory],
  ["Classes", (one) => Object.entries(one.classes).map(([name, cls]) => `${name}=${cls}`).join(", ")],
];

const SELDOM_MS = 5000;

/** Called as often as one likes, it does its work at most every few seconds while it is shown, also for the last call. */
function seldom(element, work) {
  let [next, timer] = [0, 0];
  return () => {
    if (timer) return;
    timer = setTimeout(() => {
      [next, timer] = [performance.now() + SELDOM_MS, 0];
      if (element.isConnected) work();
    }, Math.max(0, next - performance.now()));
  };
}

export function nodeView(place, name, at) {
  const map = new MachineMap(name);
  const defrag = new DefragPanel(name);
  const [notes, owners, memory, conditions, classes, pods, told, head, curves] = Array.from({ length: 9 }, () => h("div"));
  let data = null;
  let lit = null;
  const cpus = () => new Set(lit ? lit.cpus.split(",").flatMap((part) => range(part)) : []);
  const light = (owner) => {
    lit = owner;
    if (data?.layout) map.update(data.layout, data.owners, cpus());
  };
  const podRows = () => Object.values(data.pods);
  const marks = () => signs(data.owners);
  const sorted = () => {
    const order = [...marks().keys()];
    const place = (one) => (one.how === "sharing" ? 9999 : order.indexOf(one.name));
    return [...data.owners].sort((a, b) => place(a) - place(b));
  };
  put(place,
    h("p", { class: "trail" }, link("cluster", "Cluster"), " / node"), h("h1", {}, name), head, notes,
    h("div", { class: "grid" },
      panel("CPUs", { command: `kubeqos map ${name}`, wide: true, tools: [svgButton(`map-${name}`, () => map.drawing), csvButton(`cpus-${name}`, ownerColumns(new Map(), light), () => data.owners)] }, map.element, legend(), owners),
      panel("Owners over time", { command: `kubeqos map ${name} -w`, wide: true, tools: [svgButton(`owners-${name}`, () => curves.querySelector("svg"))] }, curves),
      defrag.element,
      panel("Memory", { command: `kubectl get node ${name} -o yaml` }, memory),
      panel("Health", { command: `kubeqos describe node ${name}`, tools: [csvButton(`conditions-${name}`, CONDITION_COLUMNS, () => data.conditions)] }, conditions),
      panel("Classes", { command: `kubeqos describe node ${name}`, tools: [csvButton(`classes-${name}`, CLASS_COLUMNS, () => data.classes)] }, classes),
      panel("Pods", { command: `kubectl get pods -A --field-selector spec.nodeName=${name}`, tools: [csvButton(`pods-${name}`, POD_COLUMNS, podRows)] }, pods),
      panel("Events", { command: `kubectl get events -A --field-selector involvedObject.name=${name}`, wide: true, tools: [csvButton(`events-${name}`, HAPPENING_COLUMNS, () => data.happenings)] }, told)));
  new ResizeObserver(() => light(lit)).observe(map.element);

  const below = `nodes/${encodeURIComponent(name)}`;
  const over = seldom(curves, () => {
    const wide = Math.max(360, Math.min(1100, place.clientWidth - 60));
    ask(`${below}/owners`).then((told) => put(curves, chart(told, wide)), (problem) => put(curves, h("p", { class: "none" }, problem.message)));
  });
  const plan = seldom(curves, () => ask(`${below}/defrag${at ? `?at=${at}` : ""}`).then((told) => defrag.update(data.layout, data.owners, told), (problem) => defrag.failed(problem)));
  const before = {};
  return (next) => {
    data = next;
    if (data.layout) map.update(data.layout, data.owners, cpus());
    map.element.hidden = !data.layout;
    over();
    plan();
    put(head, h("p", { class: "counts" }, data.profile && h("span", { class: "count" }, "profile ", h("b", {}, data.profile)),
      data.layout && h("span", { class: "count" }, h("b", {}, String(data.layout.cpus)), " CPUs"),
      data.drivers.length > 0 && h("span", { class: "count" }, "drivers ", h("b", {}, data.drivers.join(", "))),
      data.fragments && h("span", { class: "count" }, `${data.fragments.free} CPUs nobody's own, largest block `, h("b", {}, String(data.fragments.largestNuma)), " in one NUMA node")));
    const drifting = data.owners.filter((one) => one.drift);
    put(notes, leftOut(data.leftOut), drifting.length > 0 && h("p", { class: "problem" }, `Drift: ${drifting.map((one) => `${one.name} runs on ${one.really}, assigned are ${one.cpus}`).join("; ")}`));
    const parts = {
      owners: () => put(owners, table("Who has which CPUs", ownerColumns(marks(), light), sorted())),
      layout: () => put(memory, data.layout ? [memoryTable(data.layout), distances(data.layout)] : h("p", { class: "none" }, "Not published.")),
      conditions: () => put(conditions, table("Conditions", CONDITION_COLUMNS, data.conditions)),
      classes: () => put(classes, table("Classes", CLASS_COLUMNS, data.classes)),
      pods: () => put(pods, table("Pods", POD_COLUMNS, podRows())),
      happenings: () => put(told, table("Events", HAPPENING_COLUMNS, [...data.happenings].reverse())),
    };
    for (const [part, draw] of Object.entries(parts)) {
      if (before[part] === data[part] || (part === "owners" && owners.contains(document.activeElement) && lit)) continue;
      before[part] = data[part];
      draw();
    }
  };
}

function range(part) {
  const [first, last] = part.split("-").map(Number);
  return Array.from({ length: (last ?? first) - first + 1 }, (_, index) => first + index);
}

const numas = (layout) => layout.sockets.flatMap((socket) => socket.numa);

function memoryTable(layout) {
  return savable("memory", "Memory by NUMA node", [
    ["NUMA", (one) => String(one.id)],
    ["Memory", (one) => (one.freeBytes === null ? bytes(one.memoryBytes) : meter(1 - one.freeBytes / one.memoryBytes, `${bytes(one.freeBytes)} of ${bytes(one.memoryBytes)} free`))],
    ["Huge pages", (one) => one.hugepages.map((each) => `${each.count} × ${bytes(each.sizeBytes)}`).join(", ") || "none"],
    ["Devices", (one) => one.devices.map((each) => `${each.kind} ${each.name}`).join(", ") || "none"],
  ], numas(layout));
}

function distances(layout) {
  const all = numas(layout);
  if (all.length < 2) return null;
  return [h("h3", {}, "Distances"), savable("distances", "Distances between NUMA nodes (10 is local)", [["from", (one) => `NUMA ${one.id}`], ...all.map((to) => [`to ${to.id}`, (one) => String(one.distances[to.id])])], all)];
}
