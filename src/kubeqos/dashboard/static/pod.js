// A pod: its class and why, where it runs, what was decided for it, what its node did; or why it waits and what would help.

import { badge, clock, copyable, csvButton, cpuList, h, leftOut, link, panel, phase, put, savable, svgButton, table } from "./dom.js";
import { HAPPENING_COLUMNS } from "./cluster.js";
import { HINT_COLUMNS, hintRows, matrix, merges } from "./hints.js";
import { follow } from "./live.js";
import { legend, MachineMap } from "./map.js";

const CLASS_COLUMNS = [
  ["Container", (one) => one.container || "(the pod)"],
  ["Resource", (one) => one.resource],
  ["Asked", (one) => one.asked],
  ["Has", (one) => one.assigned],
  ["Decided by", (one) => one.source],
];
const CPU_COLUMNS = [
  ["Container", (one) => one.container],
  ["CPUs", (one) => one.cpus],
  ["How", (one) => (one.exclusive ? `its own${one.idle ? `; nobody runs on ${one.idle}` : ""}` : "shared")],
  ["Memory of", (one) => (one.mems ? `NUMA ${one.mems}` : "every NUMA node")],
];
const STATE_COLUMNS = [
  ["Container", (one) => one.name],
  ["State", (one) => one.state],
  ["Restarts", (one) => String(one.restarts)],
  ["Before", (one) => [one.lastEnd, one.killedBy && `over ${one.killedBy}`].filter(Boolean).join(", ")],
];

/** A decision in a line; its numbers follow as a list. */
function decided(one) {
  const when = one.at ? clock(Date.parse(one.at) / 1000) : "";
  const words = { Admission: "taken by the API server", Refusal: `refused: ${one.message}`, Placement: `placed on ${one.node}: ${one.because ?? ""}`, Waiting: `waits: ${one.message}`,
    Preemption: `others leave ${one.node} for it: ${(one.victims ?? []).map((pod) => `${pod.namespace}/${pod.name}`).join(", ")}`, Preempted: `leaves ${one.node} for ${one.preemptor?.namespace}/${one.preemptor?.name}`,
    NodeAdmission: one.admitted ? `admitted by ${one.node}${one.alignment ? `: ${one.alignment.replace(/^admitted: /, "")}` : ""}` : `rejected by ${one.node}: ${one.message}`, Eviction: `evicted by ${one.node}: ${one.message}`,
    Restart: `${one.container} ended: ${one.reason}, exit code ${one.exitCode}` }[one.type] ?? one.type;
  const numbers = [
    ...(one.limitRanges ?? []).map((text) => `LimitRange: ${text}`),
    ...(one.quotas ?? []).map((quota) => `quota ${quota.quota}: ${pairs(quota.charged)}${quota.left ? `, left ${pairs(quota.left)}` : ""}${quota.refuses ? `; refuses: ${quota.refuses}` : ""}`),
    ...(one.refused ?? []).map((each) => `${each.count} × ${each.reason}: ${(each.nodes ?? []).join(", ")}`),
    ...(one.nearest ?? []),
    ...(one.containers ?? []).map((each) => `${each.name}: ${each.exclusive ? `own CPUs ${each.exclusive}` : each.cpus ? `CPUs ${each.cpus}` : "no CPUs of its own"}${each.because && !each.resources ? ` (${each.because})` : ""}`),
    ...(one.containers ?? []).flatMap((each) => (each.resources ?? []).map((given) => `${each.name}: ${given.resource}: ${given.given}, chosen by ${given.by}`)),
    ...(one.ranking ?? []).map((each) => `${each.place || "stays"}: ${each.pod.namespace ?? "?"}/${each.pod.name ?? "a pod"}: ${each.because}`),
  ];
  const scores = one.best?.length ? scoreTable(one.best) : null;
  return h("li", {}, h("span", { class: "when" }, when), " ", h("b", {}, one.by || one.type), ` ${words}`, one.times > 1 && ` (×${one.times})`, numbers.length > 0 && h("ul", {}, numbers.map((text) => h("li", {}, text))), scores);
}

const pairs = (found) => Object.entries(found ?? {}).map(([name, amount]) => `${name}=${amount}`).join(", ") || "nothing";

function scoreTable(best) {
  const parts = [...new Set(best.flatMap((one) => Object.keys(one.parts ?? {})))];
  return savable("points", "Points of the best nodes", [["Node", (one) => one.node], ["Points", (one) => String(one.points)], ...parts.map((part) => [part, (one) => String(one.parts?.[part] ?? 0)])], best);
}

export function podView(place, namespace, name, at) {
  const [head, notes, waits, why, classes, cpus, states, hints, story, decisions, told] = Array.from({ length: 11 }, () => h("div"));
  const where = ` -n ${namespace}`;
  const map = new MachineMap(`${namespace}-${name}`.replaceAll(/[^a-z0-9-]/gi, "-"));
  let data = null;
  let node = null;
  let ends = () => {};
  let followed = "";
  const waiting = panel("Why it waits", { command: `kubeqos why ${name}${where} --fix`, wide: true }, waits);
  const placed = panel("Where it runs", { command: `kubeqos why ${name}${where}`, wide: true, tools: [svgButton(`map-${name}`, () => map.drawing), csvButton(`cpus-${name}`, CPU_COLUMNS, () => data.cpus)] }, cpus, map.element, legend());
  const hinted = panel("NUMA hints", { command: `kubeqos why ${name}${where}`, wide: true, tools: [csvButton(`hints-${name}`, HINT_COLUMNS, () => hintRows(merges(data.decisions)))] }, hints);
  put(place,
    h("p", { class: "trail" }, link("cluster", "Cluster"), " / ", link("pods", "pods"), ` / ${namespace}`), h("h1", {}, name), head, notes,
    h("div", { class: "grid" }, waiting, placed, hinted,
      panel("Class", { command: `kubeqos why ${name}${where}` }, why),
      panel("QoS classes", { command: `kubeqos describe pod ${name}${where}`, tools: [csvButton(`classes-${name}`, CLASS_COLUMNS, () => data.classes)] }, classes),
      panel("Containers", { command: `kubectl get pod ${name}${where} -o yaml` }, states),
      panel("Decisions", { command: `kubectl get --raw /apis/decisions.kubeqos.io/v1/namespaces/${namespace}/poddecisions/${name}`, wide: true }, decisions),
      panel("Story", { command: `kubeqos story ${name}${where}`, wide: true }, story),
      panel("Events", { command: `kubectl get events${where} --field-selector involvedObject.name=${name}`, wide: true, tools: [csvButton(`events-${name}`, HAPPENING_COLUMNS, () => data.happenings)] }, told)));
  const light = () => {
    if (node?.layout && data) map.update(node.layout, node.owners, new Set(data.cpus.flatMap((one) => cpuList(one.cpus))));
  };
  new ResizeObserver(light).observe(map.element);

  const drawn = (next) => {
    data = next;
    if (data.node && data.node !== followed) {
      ends();
      followed = data.node;
      ends = follow(`nodes/${encodeURIComponent(data.node)}`, at, (told) => {
        node = told;
        light();
      }, () => (map.element.hidden = true));
    }
    light();
    waiting.hidden = Boolean(data.node) || !["Pending"].includes(data.phase);
    placed.hidden = !data.node;
    const found = merges(data.decisions);
    hinted.hidden = !found.length;
    put(hints, found.map(matrix));
    put(head, h("p", { class: "counts" }, phase(data.phase), h("span", { class: "count" }, h("b", {}, data.qosClass)), data.node && h("span", { class: "count" }, "on ", link(`nodes/${data.node}`, data.node))));
    put(notes, leftOut(data.leftOut));
    put(waits, reasons(data));
    put(why, h("dl", {}, h("dt", {}, "QoS class"), h("dd", {}, `${data.qosClass}: ${data.because}`), h("dt", {}, "Asks for"), h("dd", {}, pairs(data.requests)), h("dt", {}, "Placement"), h("dd", {}, data.placement),
      data.status && [h("dt", {}, "Status"), h("dd", {}, data.status)], data.memory.effective !== undefined && [h("dt", {}, "Protected memory"), h("dd", {}, `${data.memory.effective} of ${data.memory.asked} bytes asked${data.memory.because ? `: ${data.memory.because}` : ""}`)]));
    put(classes, table("QoS classes", CLASS_COLUMNS, data.classes));
    put(cpus, table("CPUs", CPU_COLUMNS, data.cpus));
    put(states, savable(`containers-${name}`, "Containers", STATE_COLUMNS, data.containers));
    put(decisions, data.decisions.length ? h("ol", { class: "story" }, data.decisions.map(decided)) : h("p", { class: "none" }, "No record."));
    put(story, data.story.length ? h("ol", { class: "story" }, data.story.map(step)) : h("p", { class: "none" }, data.node ? "None is told." : "No node has it yet."));
    put(told, table("Events", HAPPENING_COLUMNS, [...data.happenings].reverse()));
  };
  drawn.end = () => ends();
  return drawn;
}

function step(line) {
  const [when, ...what] = line.split(" ");
  return h("li", {}, h("span", { class: "when" }, Number.isFinite(Number(when)) ? clock(Number(when)) : when), ` ${what.join(" ")}`);
}

function reasons(data) {
  return [
    data.now && h("p", {}, badge(data.now, "good")),
    data.refused.length > 0 && h("ul", {}, data.refused.map((one) => h("li", {}, h("b", {}, one.reason), `: ${one.nodes.slice(0, 8).join(", ")}${one.nodes.length > 8 ? ` and ${one.nodes.length - 8} more` : ""}`))),
    data.nearest.map((one) => h("p", { class: "nearest" }, h("b", {}, "Nearest miss: "), one)),
    data.fixes.length > 0 && [h("h3", {}, "What would help"), h("ul", { class: "fixes" }, data.fixes.map((one) => h("li", {}, `${one.change}: it would run on `, link(`nodes/${one.node}`, one.node), copyable(one.command))))],
    !data.refused.length && !data.now && h("p", {}, data.placement),
  ];
}
